package grpcgo

import (
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/connect-idempotency/connect-idempotency-go/idempotency"
)

// binary marks names whose values are raw in grpc-go, and in base64 on the wire and in what is stored.
const binary = "-bin"

// kept is metadata in the form in which it is stored.
func kept(md metadata.MD) idempotency.Metadata {
	if len(md) == 0 {
		return nil
	}
	m := make(idempotency.Metadata, len(md))
	for name, values := range md {
		name = strings.ToLower(name)
		for _, v := range values {
			if strings.HasSuffix(name, binary) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			m[name] = append(m[name], v)
		}
	}
	return m
}

// given is stored metadata in the form in which grpc-go takes it.
func given(stored ...idempotency.Metadata) metadata.MD {
	md := make(metadata.MD)
	for _, m := range stored {
		for name, values := range m {
			if strings.HasSuffix(name, binary) {
				values = decoded(values)
			}
			md.Append(name, values...)
		}
	}
	return md
}

// decoded reads base64, padded or not. A value that is none, which a server of Connect may have sent, stays as it is.
func decoded(values []string) []string {
	raw := slices.Clone(values)
	for i, v := range values {
		if b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "=")); err == nil {
			raw[i] = string(b)
		}
	}
	return raw
}

// replayMetadata is what a stored message brings with it.
func replayMetadata(r idempotency.Reply) heldStream {
	h := heldStream{header: given(r.Header), trailer: given(r.Trailer)}
	h.header.Set(idempotency.HeaderReplayed, "true")
	return h
}
