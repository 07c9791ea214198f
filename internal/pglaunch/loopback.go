package pglaunch

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
)

const (
	// loopback is the address that Config.Loopback has a server listen on.
	loopback = "127.0.0.1"

	// hbaFile is in the server's folder, and says who gets in how.
	hbaFile = "pg_hba.conf"
	access  = "local all " + superuser + " trust\nhost all " + superuser + " " + loopback + "/32 scram-sha-256\n"
)

// prepareLoopback finds a port, and says who gets in there.
func (s *Server) prepareLoopback(ctx context.Context) (err error) {
	if s.port, err = freePort(ctx); err != nil {
		return err
	}
	hba := filepath.Join(s.folder.path, hbaFile)
	const mode = 0o644 // root's server runs as another user, and reads it
	if err := os.WriteFile(hba, []byte(access), mode); err != nil {
		return err
	}
	if err := os.Chmod(hba, mode); err != nil { // whatever the umask took away
		return err
	}
	s.hba = hba
	return nil
}

// freePort is a port that nobody listens on at this moment. A server that finds it taken after all does not start.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	return port, l.Close()
}
