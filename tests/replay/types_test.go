package replay

import (
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/apipb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/typepb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	testv1 "github.com/connect-idempotency/connect-idempotency-go/gen/connectidempotency/test/v1"
)

// handleAll serves every type of reply that the tests have.
func handleAll(r *rig) {
	handle[testv1.Proto3Message](r)
	handle[testv1.Proto2Message](r)
	handle[testv1.EditionMessage](r)
	handle[testv1.WellKnownMessage](r)

	handle[anypb.Any](r)
	handle[apipb.Api](r)
	handle[durationpb.Duration](r)
	handle[emptypb.Empty](r)
	handle[fieldmaskpb.FieldMask](r)
	handle[sourcecontextpb.SourceContext](r)
	handle[structpb.Struct](r)
	handle[structpb.Value](r)
	handle[structpb.ListValue](r)
	handle[timestamppb.Timestamp](r)
	handle[typepb.Type](r)
	handle[typepb.Enum](r)
	handle[wrapperspb.DoubleValue](r)
	handle[wrapperspb.FloatValue](r)
	handle[wrapperspb.Int64Value](r)
	handle[wrapperspb.UInt64Value](r)
	handle[wrapperspb.Int32Value](r)
	handle[wrapperspb.UInt32Value](r)
	handle[wrapperspb.BoolValue](r)
	handle[wrapperspb.StringValue](r)
	handle[wrapperspb.BytesValue](r)
}
