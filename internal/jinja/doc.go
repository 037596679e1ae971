// Package jinja renders the Jinja templates of model checkpoints, with
// the results of Hugging Face's apply_chat_template: Jinja2's immutable
// sandbox with trim_blocks, lstrip_blocks and the loop controls, Python's text
// forms of values, and the extra names raise_exception, strftime_now, the plain
// tojson filter and the generation block.
//
// A template is untrusted: it arrives with a download. Parsing is bounded by the
// length of the source and its nesting, rendering by [Limits]; going over any
// bound is a [LimitError]. There is no way from a template to files, the
// environment or Go values.
//
// Variables are untrusted too. Rendering tells which bytes of its output the
// template wrote and which came, or may have come, from variables: see
// [Rendered] and [Trusted].
//
// The package does not know chats, messages or models. It leaves out features without use in
// chat templates: inheritance, includes and imports, with and
// call blocks, recursive loops, powers, unpacked arguments, automatic escaping,
// printf-style and str.format formatting, and the filters, tests and methods
// that no released template uses. Using one of them is an error. Known differences from
// Python: integers that a template computes must fit 64 bits,
// changes of letter case follow Unicode's one-to-one mappings, a range is a
// list, an unknown filter or test is an error when it is reached, and a variable passed in is visible
// inside a block even if the template sets a variable of that name further down.
package jinja
