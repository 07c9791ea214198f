package client

import (
	"fmt"
	"testing"
)

// Of the codes of a stream that was reset, those that only say that no answer comes count.
func TestStreamCodes(t *testing.T) {
	lost := map[uint32]bool{0x0: true, 0x2: true, 0x8: true}
	for code := range uint32(0xf) {
		if got := Broken(fmt.Errorf("wrapped: %w", streamError{StreamID: 1, Code: code})); got != lost[code] {
			t.Errorf("code %#x: broken = %v, want %v", code, got, lost[code])
		}
	}
}
