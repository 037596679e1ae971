package jinja

// expr is an expression; eval computes it in the scope of r. Callers go through
// run.eval, which counts the work.
type expr interface {
	eval(r *run) (Value, error)
}

// stmt is a statement; exec appends its output to r.out.
type stmt interface {
	exec(r *run) (flow, error)
	lineNumber() int
}

// flow is how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// line is the part all statements share: where they stand in the source.
type line int

func (l line) lineNumber() int { return int(l) }

type (
	constExpr struct{ value Value }
	nameExpr  struct{ name string }
	listExpr  struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, values []expr }
	attrExpr struct {
		object expr
		name   string
	}
	itemExpr  struct{ object, key expr }
	sliceExpr struct{ object, from, to, step expr } // each bound may be nil
	callExpr  struct {
		callee expr
		args   callArgs
	}
	filterExpr struct {
		object expr // nil in a filter block: the rendered body
		name   string
		args   callArgs
	}
	testExpr struct {
		object expr
		name   string
		args   callArgs
		negate bool
	}
	unaryExpr struct {
		op      string
		operand expr
	}
	binaryExpr struct {
		op          string
		left, right expr
	}
	logicExpr struct {
		and         bool
		left, right expr
	}
	notExpr     struct{ operand expr }
	compareExpr struct {
		first    expr
		ops      []string
		operands []expr
	}
	concatExpr struct{ parts []expr }
	condExpr   struct{ test, then, otherwise expr } // otherwise may be nil
)

// callArgs are the arguments of a call as written.
type callArgs struct {
	positional []expr
	names      []string
	named      []expr
}

type (
	textStmt struct {
		line
		text string
	}
	printStmt struct {
		line
		value expr
	}
	ifStmt struct {
		line
		tests  []expr
		bodies [][]stmt
		orElse []stmt
	}
	forStmt struct {
		line
		target target
		items  expr
		filter expr // nil or the condition after if
		body   []stmt
		orElse []stmt
	}
	setStmt struct {
		line
		target target
		value  expr
	}
	setBlockStmt struct {
		line
		target target
		filter expr // nil or a chain of filters with an open end
		body   []stmt
	}
	filterStmt struct {
		line
		filter expr
		body   []stmt
	}
	scopeStmt struct { // a block with a scope
		line
		body []stmt
	}
	macroStmt struct {
		line
		macro *macro
	}
	loopControlStmt struct {
		line
		flow flow
	}
)

// target is the target of an assignment: a name, an attribute of a namespace
// (name.attr), or several targets to unpack into.
type target struct {
	name, attr string
	parts      []target
	unpack     bool
}

// macro is the definition of a macro.
type macro struct {
	name     string
	params   []string
	defaults []expr // of the last len(defaults) params
	body     []stmt
}
