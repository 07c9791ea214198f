package idempotency

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// messageJSON writes a message as protojson does.
type messageJSON struct{ message proto.Message }

func (m messageJSON) MarshalJSON() ([]byte, error) { return protojson.Marshal(m.message) }

// errorJSON writes an error in Connect's JSON form: https://connectrpc.com/docs/protocol#error-end-stream
type errorJSON struct{ err *Error }

func (e errorJSON) MarshalJSON() ([]byte, error) {
	type detail struct {
		Type  string          `json:"type"`
		Value string          `json:"value"`
		Debug json.RawMessage `json:"debug,omitempty"`
	}
	wire := struct {
		Code    string   `json:"code"`
		Message string   `json:"message,omitempty"`
		Details []detail `json:"details,omitempty"`
	}{Code: CodeName(e.err.Code), Message: e.err.Message}
	for _, d := range e.err.Details {
		w := detail{
			Type:  d.TypeUrl[strings.LastIndexByte(d.TypeUrl, '/')+1:],
			Value: base64.RawStdEncoding.EncodeToString(d.Value),
		}
		// A detail whose type is not linked in, or that JSON cannot carry, has its value alone.
		if m, err := d.UnmarshalNew(); err == nil {
			if debug, err := protojson.Marshal(m); err == nil {
				w.Debug = debug
			}
		}
		wire.Details = append(wire.Details, w)
	}
	return json.Marshal(wire)
}

// CodeName returns a code as Connect writes it, such as "failed_precondition", "ok" for OK, and "code_99" for a number
// that google.rpc.Code does not have.
func CodeName(c code.Code) string {
	if name, ok := code.Code_name[int32(c)]; ok {
		if c == code.Code_CANCELLED {
			return "canceled" // Connect's spelling
		}
		return strings.ToLower(name)
	}
	return fmt.Sprintf("code_%d", c)
}
