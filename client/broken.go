package client

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
)

// Broken reports whether an error of the client's own transport says that the connection, or the call's part of it, ended
// before the answer was whole: an end of file in the middle, a connection that was reset or closed, an HTTP/2 stream that
// was reset with NO_ERROR, INTERNAL_ERROR (net/http sends it where a handler panics or gives up) or CANCEL. It says nothing
// of an error that the server has sent, and nothing of whether the call's context has ended.
func Broken(err error) bool {
	if stream, ok := errors.AsType[streamError](err); ok {
		return stream.lost()
	}
	return slices.ContainsFunc([]error{io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE},
		func(target error) bool { return errors.Is(err, target) })
}

// streamError is an HTTP/2 stream that was reset (RFC 9113, section 5.4.2). The type of net/http's own error is not
// exported; it lets itself be had as one with these fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error is there so that errors.AsType takes the type.
func (streamError) Error() string { return "an HTTP/2 stream was reset" }

// lost reports whether the reset tells nothing but that no answer comes. The other codes say that the call would fail
// again, or, as REFUSED_STREAM, are known to transports as Unavailable.
func (e streamError) lost() bool {
	const noError, internalError, cancel = 0x0, 0x2, 0x8 // RFC 9113, section 7
	return e.Code == noError || e.Code == internalError || e.Code == cancel
}
