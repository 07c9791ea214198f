package target

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

const bankTimeout = 5 * time.Second

// bank is the other system, which takes a key of its own with every call.
type bank struct {
	client *http.Client
	url    string
}

// capture tells the bank of a charge. The key is only for the bank's record of whose charge it was.
func (b *bank) capture(ctx context.Context, key, derivedKey string) error {
	ctx, cancel := context.WithTimeout(ctx, bankTimeout)
	defer cancel()
	query := url.Values{"key": {key}, "derived_key": {derivedKey}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"?"+query, http.NoBody)
	if err != nil {
		return err
	}
	res, err := b.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the bank answered %s", res.Status)
	}
	return nil
}
