package picture

import "encoding/binary"

// orientation is the orientation in EXIF data: 1 to 8, and 1 for no or broken data.
// exif is a TIFF file, with or without the prefix that JPEG has.
func orientation(exif []byte) int {
	const header, entry, tag = 8, 12, 0x0112
	if begins(exif, "Exif\x00") && len(exif) >= 6 {
		exif = exif[6:]
	}
	if len(exif) < header {
		return 1
	}
	var order binary.ByteOrder
	switch string(exif[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	at := int64(order.Uint32(exif[4:]))
	if at+2 > int64(len(exif)) {
		return 1
	}
	entries := exif[at+2:]
	for range order.Uint16(exif[at:]) {
		if len(entries) < entry {
			break
		}
		if order.Uint16(entries) == tag {
			if v := order.Uint16(entries[8:]); order.Uint16(entries[2:]) == 3 && v >= 1 && v <= 8 {
				return int(v)
			}
			break
		}
		entries = entries[entry:]
	}
	return 1
}

// turn applies an EXIF orientation. 1 and invalid orientations change nothing.
func (m *Image) turn(orientation int) *Image {
	w, h := m.Width, m.Height
	var first, right, down int // pixels: of the first one, to the next in a row, to the next row
	switch orientation {
	case 2:
		first, right, down = w-1, -1, w
	case 3:
		first, right, down = w*h-1, -1, -w
	case 4:
		first, right, down = w*(h-1), 1, -w
	case 5:
		first, right, down = 0, w, 1
	case 6:
		first, right, down = w*(h-1), -w, 1
	case 7:
		first, right, down = w*h-1, -w, -1
	case 8:
		first, right, down = w-1, w, -1
	default:
		return m
	}
	if orientation >= 5 {
		w, h = h, w
	}
	out := newImage(w, h)
	for y := range h {
		from, to := first+y*down, out.row(y)
		for x := 0; x < len(to); x += 3 {
			copy(to[x:x+3], m.Pix[3*from:])
			from += right
		}
	}
	return out
}
