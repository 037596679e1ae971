package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftimeNow is strftime_now(format): the present time in C's format, as
// Python's datetime.now().strftime writes it in the C locale.
func strftimeNow(r *run, a args) (Value, error) {
	bound, err := a.bind("strftime_now", 1, "value")
	if err != nil {
		return Value{}, err
	}
	format, err := textArg("strftime_now", bound[0])
	if err != nil {
		return Value{}, err
	}
	if err := r.alloc(32 * len(format)); err != nil { // the longest directive is 24 bytes
		return Value{}, err
	}
	s, err := strftime(r.now(), format)
	return bound[0].like(s), err
}

// The supported directives, as Go's layouts.
var timeLayouts = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006",
	'd': "02", 'D': "01/02/06", 'e': "_2", 'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01", 'M': "04",
	'p': "PM", 'r': "03:04:05 PM", 'R': "15:04", 'S': "05", 'T': "15:04:05", 'x': "01/02/06",
	'X': "15:04:05", 'y': "06", 'Y': "2006", '%': "%",
}

func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		noPad := i < len(format) && format[i] == '-'
		if noPad {
			i++
		}
		if i == len(format) {
			return "", fmt.Errorf("time format %q ends within a directive", format)
		}
		layout, ok := timeLayouts[format[i]]
		if !ok {
			return "", fmt.Errorf("time directive %%%c is not supported", format[i])
		}
		s := t.Format(layout)
		if noPad {
			if s = strings.TrimLeft(s, "0 "); s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
