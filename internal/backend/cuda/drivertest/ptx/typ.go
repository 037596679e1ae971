package ptx

// typ is a type of the language; the values have no meaning.
type typ uint8

const (
	typeNone typ = iota
	typePred
	typeB8
	typeB16
	typeB32
	typeB64
	typeU8
	typeU16
	typeU32
	typeU64
	typeS8
	typeS16
	typeS32
	typeS64
	typeF16
	typeF32
	typeF64
)

var types = map[string]typ{
	"pred": typePred, "b8": typeB8, "b16": typeB16, "b32": typeB32, "b64": typeB64,
	"u8": typeU8, "u16": typeU16, "u32": typeU32, "u64": typeU64,
	"s8": typeS8, "s16": typeS16, "s32": typeS32, "s64": typeS64,
	"f16": typeF16, "f32": typeF32, "f64": typeF64,
}

func (t typ) bits() int {
	switch t {
	case typePred:
		return 1
	case typeB8, typeU8, typeS8:
		return 8
	case typeB16, typeU16, typeS16, typeF16:
		return 16
	case typeB32, typeU32, typeS32, typeF32:
		return 32
	}
	return 64
}

func (t typ) signed() bool { return t >= typeS8 && t <= typeS64 }
func (t typ) float() bool  { return t >= typeF16 }

// space is where an address points.
type space uint8

const (
	spaceGeneric space = iota
	spaceGlobal
	spaceShared
	spaceLocal
	spaceParam
)

func (s space) String() string {
	return [...]string{"generic", "global", "shared", "local", "param"}[s]
}

// lanes of a warp.
const lanes = 32

const allLanes = 1<<lanes - 1

type (
	v32 = [lanes]uint32
	v64 = [lanes]uint64
)

// special registers, in the order in which a warp has them before its constants.
var specials = map[string]int32{
	"%tid.x": 0, "%tid.y": 1, "%tid.z": 2, "%ntid.x": 3, "%ntid.y": 4, "%ntid.z": 5,
	"%ctaid.x": 6, "%ctaid.y": 7, "%ctaid.z": 8, "%nctaid.x": 9, "%nctaid.y": 10, "%nctaid.z": 11,
	"%laneid": 12,
}

const specialCount = 13
