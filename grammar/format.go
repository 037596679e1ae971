package grammar

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// formatLengths are the maximum lengths of strings of formats: of host names by RFC 1123,
// of e-mail addresses less than RFC 5321 allows. An address no longer than its first
// part may be needs no automaton that counts the characters of its parts, with a state for each.
var formatLengths = map[string]int32{"hostname": 253, "email": 64}

// formatDFAs are the automata of formats, which all grammars share.
var formatDFAs sync.Map // of *dfa, by formatKey

type formatKey struct {
	name     string
	spelling spelling
}

// formatDFA is the automaton of a format, built at its first use.
func formatDFA(name string, s spelling) *dfa {
	key := formatKey{name, s}
	if d, ok := formatDFAs.Load(key); ok {
		return d.(*dfa)
	}
	made, _ := formatDFAs.LoadOrStore(key, mustRegex(formats[name], s))
	return made.(*dfa)
}

// formats are the values of the keyword format, as expressions for the whole string. Each
// leaves only strings of the format, though not every one: leap seconds, lower-case
// letters of RFC 3339, comments and quoted parts of addresses are left out, and so are labels
// of host names with "--" as their third and fourth characters, which only encoded names have.
var formats = func() map[string]string {
	const (
		year  = `[0-9]{4}`
		leap  = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
		date  = `(?:` + year + `-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + leap + `-02-29)`
		clock = `(?:[01][0-9]|2[0-3]):[0-5][0-9]`
		time  = clock + `:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-]` + clock + `)`

		hours    = `(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)`
		days     = `(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)`
		duration = `P(?:[0-9]+W|` + days + `(?:T` + hours + `)?|T` + hours + `)`

		alnum    = `[A-Za-z0-9]`
		inner    = `[A-Za-z0-9-]`
		begin    = alnum + `(?:` + alnum + `|` + inner + `{1,2}` + alnum + `|` + inner + `(?:` + alnum + inner + `|-` + alnum + `)` + inner
		label    = begin + `{0,58}` + alnum + `)?`
		short    = begin + `*` + alnum + `)?`
		hostname = label + `(?:\.` + label + `)*`
		atom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

		byteValue = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
		ipv4      = byteValue + `(?:\.` + byteValue + `){3}`

		varchar = `(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})`
		varspec = varchar + `+(?:\*|:[1-9][0-9]{0,3})?`
		pointer = `(?:/(?:[^~/]|~[01])*)*`
	)
	return map[string]string{
		"date":      date,
		"time":      time,
		"date-time": date + `T` + time,
		"duration":  duration,
		"email":     atom + `(?:\.` + atom + `)*@` + short + `(?:\.` + short + `)+`, // common validators refuse a host without a dot
		"hostname":  hostname,
		"ipv4":      ipv4,
		"ipv6":      ipv6(ipv4),
		"uuid":      `[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}`,

		"uri":           reference("", false),
		"uri-reference": reference("", true),
		"iri":           reference(wide, false),
		"iri-reference": reference(wide, true),
		"uri-template": `(?:[!#$&()*+,./0-9:;=?@A-Z_a-z~\[\]` + wide + `-]|%[0-9A-Fa-f]{2}|` +
			`\{[+#./;?&]?` + varspec + `(?:,` + varspec + `)*\})*`,
		"regex":                 expressionText(),
		"json-pointer":          pointer,
		"relative-json-pointer": `(?:0|[1-9][0-9]*)(?:#|` + pointer + `)`,
	}
}()

// otherFormats are the draft's formats that are not supported.
var otherFormats = []string{"idn-email", "idn-hostname"}

// integerFormats are the formats of integers in the registry of OpenAPI, with the least and the
// greatest of each. Like all formats they say nothing about values in enum and const.
var integerFormats = func() map[string][2]*bound {
	span := func(lo, hi string) [2]*bound {
		least, most := &bound{}, &bound{whole: hi}
		least.whole, least.negative = strings.CutPrefix(lo, "-")
		return [2]*bound{least, most}
	}
	return map[string][2]*bound{
		"int8": span("-128", "127"), "uint8": span("0", "255"), "int16": span("-32768", "32767"), "uint16": span("0", "65535"),
		"int32": span("-2147483648", "2147483647"), "uint32": span("0", "4294967295"),
		"int64": span("-9223372036854775808", "9223372036854775807"), "uint64": span("0", "18446744073709551615"),
		"double-int": span("-9007199254740991", "9007199254740991"),
	}
}()

// wide are the characters outside of ASCII that RFC 3987 allows, as part of a class.
const wide = `\x{A0}-\x{D7FF}\x{F900}-\x{FDCF}\x{FDF0}-\x{FFEF}\x{10000}-\x{1FFFD}\x{20000}-\x{2FFFD}`

// reference is the expression of a URI (RFC 3986), or of a reference, which may be relative, with
// more characters in its names.
func reference(more string, relative bool) string {
	var (
		name      = `[A-Za-z0-9._~!$&'()*+,;=` + more + `-]|%[0-9A-Fa-f]{2}`
		segment   = `(?:[:@]|` + name + `)`
		segments  = `(?:/` + segment + `*)*`
		authority = `//(?:` + name + `)*(?::[0-9]*)?` + segments
		expr      = `[A-Za-z][A-Za-z0-9+.-]*:(?:` + authority + `|/?(?:` + segment + `+` + segments + `)?)`
	)
	if relative { // a first segment with a colon would be a scheme
		expr = `(?:` + expr + `|` + authority + `|/?(?:(?:@|` + name + `)+` + segments + `)?)`
	}
	return expr + `(?:\?(?:[/?]|` + segment + `)*)?(?:#(?:[/?]|` + segment + `)*)?`
}

// maxGroups is the maximum nesting of groups in strings of the format regex.
const maxGroups = 3

// expressionText is the expression of regular expressions as ECMA 262 has them with the flag u, apart
// from look-around, back references, named groups, escapes by number, and most ranges.
func expressionText() string {
	const (
		marks   = `^$\\.*+?()\[\]{}|/`
		escape  = `\\[dDwWsStnrfv` + marks + `]`
		member  = `[^\x00-\x1F\\\]\[^-]|(?:0-9|a-z|A-Z|a-f|A-F)|\\-|` + escape
		class   = `\[\^?(?:-(?:` + member + `)*|(?:` + member + `)+-?)\]`
		atom    = `[^\x00-\x1F` + marks + `]|/|\.|` + escape + `|` + class
		times   = `(?:(?:[*+?]|\{[0-9]{1,3},?\}|\{[01],[1-9][0-9]{0,2}\})\??)?`
		bound   = `[\^$]|\\[bB]`
		between = `\|`
	)
	expr := `(?:(?:` + atom + `)` + times + `|` + bound + `|` + between + `)*`
	for range maxGroups {
		expr = `(?:(?:` + atom + `|\((?:\?:)?` + expr + `\))` + times + `|` + bound + `|` + between + `)*`
	}
	return expr
}

// ipv6 lists the forms of RFC 3986 by the number of groups before the two colons.
func ipv6(ipv4 string) string {
	const group = `[0-9A-Fa-f]{1,4}`
	last := `(?:` + group + `:` + group + `|` + ipv4 + `)` // 32 bits
	forms := []string{`(?:` + group + `:){6}` + last}
	for before := range 8 {
		left := ``
		if before > 0 {
			left = `(?:` + group + `(?::` + group + `){0,` + strconv.Itoa(before-1) + `})?`
		}
		switch after := 7 - before; {
		case after >= 2:
			forms = append(forms, left+`::`+strings.Repeat(`(?:`+group+`:)`, after-2)+last)
		case after == 1:
			forms = append(forms, left+`::`+group)
		default:
			forms = append(forms, left+`::`)
		}
	}
	return `(?:` + strings.Join(forms, `|`) + `)`
}

// formatNames lists the formats for a message.
func formatNames() string {
	return strings.Join(slices.Sorted(maps.Keys(formats)), ", ")
}
