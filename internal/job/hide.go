package job

import (
	"bytes"
	"encoding/json"
)

// hiddenValue stands for the value of a variable where it is not to be seen.
const hiddenValue = `"(hidden)"`

// HideEnv returns a payload without the values of its variables, for lists and
// events: they may be secrets, and are for those who do the job. What cannot be
// read is hidden whole.
func HideEnv(payload json.RawMessage) json.RawMessage {
	return within(payload, "env", func(env json.RawMessage) json.RawMessage {
		var values map[string]json.RawMessage
		if json.Unmarshal(env, &values) != nil {
			return json.RawMessage(hiddenValue)
		}
		for name := range values {
			values[name] = json.RawMessage(hiddenValue)
		}
		out, err := json.Marshal(values)
		if err != nil {
			return json.RawMessage(hiddenValue)
		}
		return out
	})
}

// HidePlanEnv is HideEnv for the payloads of the tasks in the document of a plan.
func HidePlanEnv(document json.RawMessage) json.RawMessage {
	return within(document, "tasks", func(raw json.RawMessage) json.RawMessage {
		var tasks []json.RawMessage
		if json.Unmarshal(raw, &tasks) != nil {
			return raw // no list of tasks, so no payload
		}
		for i := range tasks {
			tasks[i] = within(tasks[i], "payload", HideEnv)
		}
		out, err := json.Marshal(tasks)
		if err != nil {
			return json.RawMessage(hiddenValue)
		}
		return out
	})
}

// within changes one member of an object; anything else stays byte for byte.
func within(object json.RawMessage, name string, change func(json.RawMessage) json.RawMessage) json.RawMessage {
	if !bytes.Contains(object, []byte(`"env"`)) && !bytes.ContainsRune(object, '\\') { // a name can be written with escapes
		return object
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return object // no object, so nothing is in it
	}
	member, ok := members[name]
	if !ok {
		return object
	}
	changed := change(member)
	if bytes.Equal(changed, member) {
		return object
	}
	members[name] = changed
	out, err := json.Marshal(members)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return out
}
