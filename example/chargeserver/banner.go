package main

import (
	"fmt"
	"io"
	"net"
	"strings"
)

// printBanner says where the server listens, and what to paste to call it and to look into its tables.
func printBanner(out io.Writer, c config, b *backend, at net.Addr) error {
	var text strings.Builder
	if b.warn != "" {
		frame := strings.Repeat("*", 100)
		fmt.Fprintf(&text, "\n%s\n\n%s\n\n%s\n", frame, b.warn, frame)
	}
	base := "http://" + hostPort(c.addr, at)
	fmt.Fprintf(&text, "\nchargeserver listens on %s\n  %s\n  charges and keys are in %s\n", base, aboutMode(b), b.about)
	fmt.Fprintf(&text, `
Charge a card. Paste it twice: the second call gets the first one's answer.

  buf curl -H 'idempotency-key: order-1' \
    -d '{"amount": 1299, "currency": "EUR", "card_token": "tok_ok", "description": "Coffee beans"}' \
    %s/charges.v1.ChargeService/CreateCharge
`, base)
	if b.psql != "" {
		fmt.Fprintf(&text, `
Look into the tables:

  %s \
    -c 'select id, amount, currency, description, status from charges order by created_at' \
    -c 'select key, state, code, response_body from idempotency_keys order by created_at'
`, b.psql)
	}
	text.WriteString("\n^C stops the server. Each guarded call is logged in one line:\n\n")
	_, err := io.WriteString(out, text.String())
	return err
}

func aboutMode(b *backend) string {
	if b.store.Transactional() {
		return "transactional: a charge and the reply to it commit in one transaction"
	}
	return "leased: a key is claimed before its call runs, and the reply is kept after it"
}

// hostPort is the address to call: the host as it was asked for, with the port that the system gave.
func hostPort(asked string, at net.Addr) string {
	host, _, err := net.SplitHostPort(asked)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return at.String()
	}
	return net.JoinHostPort(host, port)
}
