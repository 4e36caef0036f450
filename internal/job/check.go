package job

import (
	"bytes"
	"encoding/json"

	"github.com/aurea-dev/aurea/internal/fault"
)

// CheckReason refuses a reason that is too long to be one.
func CheckReason(field, reason string) error { return checkText(field, reason, MaxTitle) }

// CheckObject refuses a document that is not a JSON object, or that is larger
// or deeper than anybody needs. Nothing, or null, becomes an empty object.
func CheckObject(field string, doc json.RawMessage, most int) (json.RawMessage, error) {
	if len(doc) > most {
		return nil, fault.Field(field, "is %d bytes long; at most %d are allowed", len(doc), most)
	}
	if len(doc) == 0 {
		return json.RawMessage(`{}`), nil
	}
	switch text := bytes.TrimLeft(doc, " \t\r\n"); {
	case !json.Valid(doc) || text[0] != '{' && text[0] != 'n':
		return nil, fault.Field(field, "must be a JSON object")
	case text[0] == 'n': // null
		return json.RawMessage(`{}`), nil
	}
	if err := checkJSON(doc); err != nil {
		return nil, underField(field, err)
	}
	return doc, nil
}
