package grammar

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// formats are the values of the keyword format, as expressions for the whole string. Each
// leaves only strings of the format, though not every one: leap seconds, lower-case
// letters of RFC 3339, comments and quoted parts of addresses are left out. Only the
// lengths of host names are not looked at.
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

		label    = `[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?`
		hostname = label + `(?:\.` + label + `)*`
		atom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

		byteValue = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
		ipv4      = byteValue + `(?:\.` + byteValue + `){3}`

		percent = `%[0-9A-Fa-f]{2}`
		name    = `[A-Za-z0-9._~!$&'()*+,;=-]|` + percent
		segment = `(?:[:@]|` + name + `)`
	)
	return map[string]string{
		"date":      date,
		"time":      time,
		"date-time": date + `T` + time,
		"duration":  duration,
		"email":     atom + `(?:\.` + atom + `)*@` + hostname,
		"hostname":  hostname,
		"ipv4":      ipv4,
		"ipv6":      ipv6(ipv4),
		"uuid":      `[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}`,
		"uri": `[A-Za-z][A-Za-z0-9+.-]*:(?://(?:` + name + `)*(?::[0-9]*)?(?:/` + segment + `*)*|/?(?:` + segment + `+(?:/` + segment + `*)*)?)` +
			`(?:\?(?:[/?]|` + segment + `)*)?(?:#(?:[/?]|` + segment + `)*)?`,
	}
}()

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
