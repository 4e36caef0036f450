package client

import "context"

// Language is one that programs can be written in.
type Language struct {
	Name     string   `json:"name"`
	Aliases  []string `json:"aliases"`
	File     string   `json:"file"`
	Compiled bool     `json:"compiled"`
	Image    string   `json:"image,omitempty"` // where a request names none
	Active   bool     `json:"active"`
	Reason   string   `json:"reason,omitempty"` // why it is not active
}

// Languages lists what programs can be written in.
func (c *Client) Languages(ctx context.Context) ([]Language, error) {
	var list []Language
	_, err := c.call(ctx, get("api", "v1", "languages"), &list)
	return list, err
}

// PoolClass is one kind of sandbox that waits for code at a worker.
type PoolClass struct {
	WorkerID string  `json:"worker_id"`
	Driver   string  `json:"driver"`
	Image    string  `json:"image"`
	Language string  `json:"language"`
	MilliCPU int64   `json:"milli_cpu"`
	Memory   int64   `json:"memory_bytes"`
	Wanted   int     `json:"wanted"`
	Waiting  int     `json:"waiting"`
	Making   int     `json:"making"`
	Hits     int64   `json:"hits"`
	Misses   int64   `json:"misses"`
	Discards int64   `json:"discards"`
	Oldest   float64 `json:"oldest_seconds"`
}

// Pool lists the sandboxes that wait for code.
func (c *Client) Pool(ctx context.Context) ([]PoolClass, error) {
	var list []PoolClass
	_, err := c.call(ctx, get("api", "v1", "pool"), &list)
	return list, err
}
