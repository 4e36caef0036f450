package sqlstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
)

// Line is one row of one table on its way from one database to another, or
// into a backup. Tables and columns have the same names in every adapter.
type Line struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	Values  []any    `json:"values"` // each an int64, a string or a []byte
}

// bytesValue is how bytes are written as JSON.
type bytesValue struct {
	Base64 string `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (l Line) MarshalJSON() ([]byte, error) {
	type plain Line
	values := make([]any, len(l.Values))
	for i, v := range l.Values {
		if b, ok := v.([]byte); ok {
			v = bytesValue{base64.StdEncoding.EncodeToString(b)}
		}
		values[i] = v
	}
	l.Values = values
	return json.Marshal(plain(l))
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Line) UnmarshalJSON(text []byte) error {
	var raw struct {
		Table   string            `json:"table"`
		Columns []string          `json:"columns"`
		Values  []json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	if len(raw.Values) != len(raw.Columns) || !plainName(raw.Table) {
		return fmt.Errorf("a line of the table %q is damaged", raw.Table)
	}
	l.Table, l.Columns, l.Values = raw.Table, raw.Columns, make([]any, len(raw.Values))
	for i, v := range raw.Values {
		if !plainName(raw.Columns[i]) {
			return fmt.Errorf("a line of the table %q is damaged", raw.Table)
		}
		var number int64
		var word string
		var some bytesValue
		switch {
		case json.Unmarshal(v, &number) == nil:
			l.Values[i] = number
		case json.Unmarshal(v, &word) == nil:
			l.Values[i] = word
		default:
			if err := json.Unmarshal(v, &some); err != nil {
				return fmt.Errorf("a line of the table %q is damaged: %w", raw.Table, err)
			}
			b, err := base64.StdEncoding.DecodeString(some.Base64)
			if err != nil {
				return fmt.Errorf("a line of the table %q is damaged: %w", raw.Table, err)
			}
			l.Values[i] = b
		}
	}
	return nil
}

// plainName reports whether a name is one of a table or column of ours: it
// becomes part of a statement.
func plainName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return name != ""
}

// Sum adds up lines in whatever order they come, so that two databases can be
// compared.
type Sum struct {
	Rows  int64    `json:"rows"`
	Total *big.Int `json:"total"`
}

// Add adds a line.
func (s *Sum) Add(l *Line) error {
	row := make(map[string]any, len(l.Values)) // the order of columns is not the same everywhere
	for i, v := range l.Values {
		row[l.Columns[i]] = v
	}
	text, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	digest := sha256.Sum256(text)
	if s.Total == nil {
		s.Total = new(big.Int)
	}
	s.Total.Add(s.Total, new(big.Int).SetBytes(digest[:]))
	s.Rows++
	return nil
}

// Equal reports whether two sums are of the same lines.
func (s *Sum) Equal(other *Sum) bool {
	if s.Rows != other.Rows {
		return false
	}
	return s.Rows == 0 || s.Total.Cmp(other.Total) == 0
}
