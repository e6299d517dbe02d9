/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/pickle_read.h"

#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Opcodes: https://docs.python.org/3/library/pickletools.html, Lib/pickle.py of Python 3.12. */
enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_DICT = 'd',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_LIST = 'l',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
};

static const char *const refused_names[256] = {
    ['0'] = "POP",         ['1'] = "POP_MARK",     ['2'] = "DUP",
    ['F'] = "FLOAT",       ['I'] = "INT",          ['L'] = "LONG",
    ['P'] = "PERSID",      ['Q'] = "BINPERSID",    ['R'] = "REDUCE",
    ['S'] = "STRING",      ['T'] = "BINSTRING",    ['U'] = "SHORT_BINSTRING",
    ['V'] = "UNICODE",     ['B'] = "BINBYTES",     ['C'] = "SHORT_BINBYTES",
    ['b'] = "BUILD",       ['c'] = "GLOBAL",       ['g'] = "GET",
    ['i'] = "INST",        ['o'] = "OBJ",          ['p'] = "PUT",
    [0x81] = "NEWOBJ",     [0x82] = "EXT1",        [0x83] = "EXT2",
    [0x84] = "EXT4",       [0x8b] = "LONG4",       [0x8d] = "BINUNICODE8",
    [0x8e] = "BINBYTES8",  [0x8f] = "EMPTY_SET",   [0x90] = "ADDITEMS",
    [0x91] = "FROZENSET",  [0x92] = "NEWOBJ_EX",   [0x93] = "STACK_GLOBAL",
    [0x96] = "BYTEARRAY8", [0x97] = "NEXT_BUFFER", [0x98] = "READONLY_BUFFER",
};

/* Python's pickler puts at most this many elements into one batch; a dictionary that got fewer in
 * one SETITEMS is complete. */
enum { BATCH = 1000 };

/* Small files may be as odd as they like; beyond that, what a reader has to keep is held to a
 * multiple of the file's size: a snapshot spends at least 8 bytes on what waits on the stack, and
 * at least 4 on a container or a memo entry, at least 2 on an element. */
enum { FREE_ALLOWANCE = 4096, BYTES_PER_STACK = 8, BYTES_PER_NODE = 4, BYTES_PER_ITEM = 2 };

typedef struct {
    union {
        sim_pickle_value_t *items; /* n in use */
        uint64_t ref;              /* reduced: the reducer's number */
    } u;
    uint32_t n, cap; /* reduced: n is the reducer's tag */
    uint8_t kind, height;
    bool is_reduced;
    bool is_closed; /* is an element of another container: must not change any more */
} node_t;

struct sim_pickle {
    const uint8_t *data;
    size_t n, pos, op_pos;
    sim_pickle_reduce_f reduce;
    void *reduce_arg;
    sim_pickle_value_t *stack, *memo; /* memo: kind UNSET where nothing was put */
    size_t n_stack, cap_stack, n_memo, cap_memo;
    node_t *nodes;
    size_t n_nodes, cap_nodes, n_items;
    size_t marks[SIM_PICKLE_MAX_DEPTH]; /* stack sizes at the open MARKs */
    unsigned n_marks;
    base_err_t *err;
};

enum { UNSET = SIM_PICKLE_REDUCED + 1 };

static base_status_t bad(sim_pickle_t *p, const char *what)
{
    return base_err_set(p->err, BASE_ERR_PARSE, "pickle, offset %zu: %s", p->op_pos, what);
}

bool sim_pickle_detect(const void *data, size_t n)
{
    const uint8_t *d = data;
    if (n < 2)
        return false;
    if (d[0] == OP_PROTO)
        return true;
    /* Protocols 0 and 1 have no PROTO: a dictionary or list begins with these. */
    return d[0] == OP_MARK || d[0] == OP_EMPTY_DICT || d[0] == OP_EMPTY_LIST;
}

static void *grow(void *array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return array;
    size_t cap_new = *cap + *cap / 2 + 16;
    if (cap_new < need)
        cap_new = need;
    *cap = cap_new;
    return base_xrealloc(array, cap_new, size);
}

static base_status_t push(sim_pickle_t *p, sim_pickle_value_t value)
{
    if (p->n_stack >= FREE_ALLOWANCE + p->n / BYTES_PER_STACK)
        return bad(p, "too many values for a file of this size wait to be put into a list");
    p->stack = grow(p->stack, &p->cap_stack, p->n_stack + 1, sizeof(*p->stack));
    p->stack[p->n_stack++] = value;
    return BASE_OK;
}

static base_status_t push_kind(sim_pickle_t *p, sim_pickle_kind_t kind, int64_t i)
{
    return push(p, (sim_pickle_value_t){ .kind = kind, .u.i = i });
}

/* Stack entries above the last MARK. */
static size_t n_above_mark(const sim_pickle_t *p)
{
    return p->n_stack - (p->n_marks > 0 ? p->marks[p->n_marks - 1] : 0);
}

static bool is_container(sim_pickle_value_t value)
{
    return value.kind == SIM_PICKLE_LIST || value.kind == SIM_PICKLE_TUPLE ||
           value.kind == SIM_PICKLE_DICT;
}

static base_status_t push_node(sim_pickle_t *p, sim_pickle_kind_t kind)
{
    if (p->n_nodes >= FREE_ALLOWANCE + p->n / BYTES_PER_NODE)
        return bad(p, "too many lists and dictionaries for a file of this size");
    p->nodes = grow(p->nodes, &p->cap_nodes, p->n_nodes + 1, sizeof(*p->nodes));
    p->nodes[p->n_nodes] = (node_t){ .kind = (uint8_t)kind, .height = 1 };
    base_status_t status =
        push(p, (sim_pickle_value_t){ .kind = kind, .u.ref = (uint64_t)p->n_nodes });
    p->n_nodes++;
    return status;
}

static base_status_t try_reduce(sim_pickle_t *p, node_t *node, const sim_pickle_value_t *items,
                                size_t n)
{
    if (p->reduce == NULL)
        return BASE_OK;
    sim_pickle_value_t out = { 0 };
    base_err_t why = { .text = "refused" };
    switch (p->reduce(p->reduce_arg, p, (sim_pickle_kind_t)node->kind, items, n, &out, &why)) {
    case SIM_PICKLE_KEEP:
        return BASE_OK;
    case SIM_PICKLE_FAIL:
        return bad(p, why.text);
    case SIM_PICKLE_REDUCE:
        break;
    }
    free(node->u.items);
    node->u.ref = out.u.ref;
    node->n = out.bytes;
    node->is_reduced = true;
    return BASE_OK;
}

/* The value becomes an element of `parent`: what it holds is final from here on. */
static base_status_t close_child(sim_pickle_t *p, const node_t *parent, sim_pickle_value_t *value,
                                 unsigned *height)
{
    if (!is_container(*value))
        return BASE_OK;
    node_t *node = &p->nodes[value->u.ref];
    if (node == parent)
        return bad(p, "a container that holds itself");
    if (!node->is_closed && !node->is_reduced) {
        base_status_t status = try_reduce(p, node, node->u.items, node->n);
        if (status != BASE_OK)
            return status;
    }
    node->is_closed = true;
    if (node->height + 1U > *height)
        *height = node->height + 1U;
    if (node->is_reduced)
        *value = (sim_pickle_value_t){ .kind = SIM_PICKLE_REDUCED,
                                       .bytes = node->n,
                                       .u.ref = node->u.ref };
    return BASE_OK;
}

/* Move the n topmost stack entries into the node that `target` stands for. */
static base_status_t add_items(sim_pickle_t *p, sim_pickle_value_t target, size_t n, bool is_final)
{
    node_t *node = &p->nodes[target.u.ref];
    sim_pickle_value_t *from = &p->stack[p->n_stack - n];
    if (node->is_closed || (node->is_reduced && n > 0))
        return bad(p, "a container changes after it was complete");
    if (node->kind == SIM_PICKLE_DICT && n % 2 != 0)
        return bad(p, "a dictionary gets a key without a value");
    unsigned height = node->height;
    for (size_t i = 0; i < n; i++) {
        if (node->kind == SIM_PICKLE_DICT && i % 2 == 0 && from[i].kind != SIM_PICKLE_STR &&
            from[i].kind != SIM_PICKLE_INT)
            return bad(p, "a key that is neither a string nor a whole number");
        base_status_t status = close_child(p, node, &from[i], &height);
        if (status != BASE_OK)
            return status;
    }
    if (height > SIM_PICKLE_MAX_DEPTH)
        return bad(p, "nested more than 64 deep");
    node->height = (uint8_t)height;
    if (is_final && node->n == 0 && n > 0) {
        base_status_t status = try_reduce(p, node, from, n);
        if (status != BASE_OK)
            return status;
    }
    p->n_stack -= n;
    if (node->is_reduced || n == 0)
        return BASE_OK;
    p->n_items += n;
    if (p->n_items > FREE_ALLOWANCE + p->n / BYTES_PER_ITEM || n > UINT32_MAX - node->n)
        return bad(p, "too many elements for a file of this size");
    size_t cap = node->cap;
    node->u.items = cap == 0 ? base_xcalloc(cap = n, sizeof(*from))
                             : grow(node->u.items, &cap, node->n + n, sizeof(*from));
    node->cap = (uint32_t)cap;
    memcpy(node->u.items + node->n, from, n * sizeof(*from));
    node->n += (uint32_t)n;
    return BASE_OK;
}

/* A new container of the n topmost entries takes their place (TUPLE, LIST, DICT opcodes). */
static base_status_t collect(sim_pickle_t *p, sim_pickle_kind_t kind, size_t n)
{
    if (n_above_mark(p) < n)
        return bad(p, "the stack is empty");
    base_status_t status = push_node(p, kind);
    if (status != BASE_OK)
        return status;
    sim_pickle_value_t made = p->stack[--p->n_stack];
    status = add_items(p, made, n, kind == SIM_PICKLE_DICT);
    return status == BASE_OK ? push(p, made) : status;
}

static base_status_t pop_mark(sim_pickle_t *p, size_t *n_p)
{
    if (p->n_marks == 0)
        return bad(p, "no MARK is open");
    *n_p = n_above_mark(p);
    p->n_marks--;
    return BASE_OK;
}

static base_status_t collect_to_mark(sim_pickle_t *p, sim_pickle_kind_t kind)
{
    size_t n = 0;
    base_status_t status = pop_mark(p, &n);
    return status == BASE_OK ? collect(p, kind, n) : status;
}

/* The n topmost entries go into the container below them. */
static base_status_t extend(sim_pickle_t *p, sim_pickle_kind_t kind, size_t n, bool is_batch)
{
    if (n_above_mark(p) < n + 1)
        return bad(p, "the stack is empty");
    sim_pickle_value_t target = p->stack[p->n_stack - n - 1];
    if (target.kind != (uint32_t)kind)
        return bad(p, kind == SIM_PICKLE_LIST ? "elements for something that is not a list"
                                              : "keys for something that is not a dictionary");
    bool is_final = kind == SIM_PICKLE_DICT && is_batch && n < 2 * (size_t)BATCH;
    return add_items(p, target, n, is_final);
}

static base_status_t extend_to_mark(sim_pickle_t *p, sim_pickle_kind_t kind)
{
    size_t n = 0;
    base_status_t status = pop_mark(p, &n);
    return status == BASE_OK ? extend(p, kind, n, true) : status;
}

static base_status_t memo_put(sim_pickle_t *p, uint64_t idx)
{
    if (n_above_mark(p) == 0)
        return bad(p, "nothing to remember on the stack");
    if (idx >= FREE_ALLOWANCE + p->n / BYTES_PER_NODE)
        return bad(p, "a memo index too high for a file of this size");
    p->memo = grow(p->memo, &p->cap_memo, (size_t)idx + 1, sizeof(*p->memo));
    while (p->n_memo <= idx)
        p->memo[p->n_memo++].kind = UNSET;
    p->memo[idx] = p->stack[p->n_stack - 1];
    return BASE_OK;
}

static base_status_t memo_get(sim_pickle_t *p, uint64_t idx)
{
    if (idx >= p->n_memo || p->memo[idx].kind == UNSET)
        return bad(p, "a memo entry that was never stored");
    return push(p, p->memo[idx]);
}

/* The next `n` bytes as a little-endian number of at most 8 bytes. */
static base_status_t take(sim_pickle_t *p, unsigned n, uint64_t *out_p)
{
    if (p->n - p->pos < n)
        return bad(p, "the file ends in the middle of a value (cut off?)");
    uint64_t x = 0;
    for (unsigned i = 0; i < n; i++)
        x |= (uint64_t)p->data[p->pos + i] << (8 * i);
    p->pos += n;
    *out_p = x;
    return BASE_OK;
}

static base_status_t read_str(sim_pickle_t *p, unsigned n_len)
{
    uint64_t bytes = 0;
    base_status_t status = take(p, n_len, &bytes);
    if (status != BASE_OK)
        return status;
    if (bytes > p->n - p->pos)
        return bad(p, "a string longer than the rest of the file (cut off?)");
    sim_pickle_value_t value = { .kind = SIM_PICKLE_STR,
                                 .bytes = (uint32_t)bytes,
                                 .u.ref = p->pos };
    p->pos += (size_t)bytes;
    return push(p, value);
}

static base_status_t read_long1(sim_pickle_t *p)
{
    uint64_t n = 0, x = 0;
    base_status_t status = take(p, 1, &n);
    if (status != BASE_OK)
        return status;
    if (n > 8) {
        if (n > p->n - p->pos)
            return bad(p, "the file ends in the middle of a value (cut off?)");
        p->pos += (size_t)n;
        return push_kind(p, SIM_PICKLE_BIG, 0);
    }
    status = take(p, (unsigned)n, &x);
    if (status != BASE_OK)
        return status;
    if (n > 0 && n < 8 && (x >> (8 * n - 1)) != 0) /* two's complement */
        x |= UINT64_MAX << (8 * n);
    return push_kind(p, SIM_PICKLE_INT, (int64_t)x);
}

static base_status_t read_float(sim_pickle_t *p)
{
    uint64_t x = 0;
    base_status_t status = take(p, 8, &x);
    if (status != BASE_OK)
        return status;
    x = __builtin_bswap64(x); /* BINFLOAT alone is big-endian */
    sim_pickle_value_t value = { .kind = SIM_PICKLE_FLOAT };
    memcpy(&value.u.f, &x, sizeof(value.u.f));
    return push(p, value);
}

static base_status_t read_uint(sim_pickle_t *p, unsigned n)
{
    uint64_t x = 0;
    base_status_t status = take(p, n, &x);
    if (status != BASE_OK)
        return status;
    return push_kind(p, SIM_PICKLE_INT, n == 4 ? (int32_t)(uint32_t)x : (int64_t)x);
}

static base_status_t read_memo(sim_pickle_t *p, unsigned n,
                               base_status_t (*act)(sim_pickle_t *, uint64_t))
{
    uint64_t idx = 0;
    base_status_t status = take(p, n, &idx);
    return status == BASE_OK ? act(p, idx) : status;
}

static base_status_t read_proto(sim_pickle_t *p)
{
    uint64_t version = 0;
    base_status_t status = take(p, 1, &version);
    if (status == BASE_OK && (version < 2 || version > 5))
        return base_err_set(p->err, BASE_ERR_PARSE,
                            "pickle, offset %zu: protocol %" PRIu64 "; 2 to 5 are read", p->op_pos,
                            version);
    return status;
}

static base_status_t read_frame(sim_pickle_t *p)
{
    uint64_t bytes = 0;
    base_status_t status = take(p, 8, &bytes);
    if (status == BASE_OK && bytes > p->n - p->pos)
        return bad(p, "a frame longer than the rest of the file (cut off?)");
    return status;
}

static base_status_t open_mark(sim_pickle_t *p)
{
    if (p->n_marks == SIM_PICKLE_MAX_DEPTH)
        return bad(p, "nested more than 64 deep");
    p->marks[p->n_marks++] = p->n_stack;
    return BASE_OK;
}

static base_status_t refuse(sim_pickle_t *p, uint8_t op)
{
    const char *name = refused_names[op];
    if (name == NULL)
        return base_err_set(p->err, BASE_ERR_PARSE, "pickle, offset %zu: 0x%02x is no opcode",
                            p->op_pos, op);
    return base_err_set(p->err, BASE_ERR_PARSE,
                        "pickle, offset %zu: opcode %s is not accepted: a memory snapshot is plain "
                        "data",
                        p->op_pos, name);
}

static base_status_t step_value(sim_pickle_t *p, uint8_t op)
{
    switch (op) {
    case OP_NONE:
        return push_kind(p, SIM_PICKLE_NONE, 0);
    case OP_NEWTRUE:
        return push_kind(p, SIM_PICKLE_BOOL, 1);
    case OP_NEWFALSE:
        return push_kind(p, SIM_PICKLE_BOOL, 0);
    case OP_BININT:
        return read_uint(p, 4);
    case OP_BININT1:
        return read_uint(p, 1);
    case OP_BININT2:
        return read_uint(p, 2);
    case OP_LONG1:
        return read_long1(p);
    case OP_BINFLOAT:
        return read_float(p);
    case OP_BINUNICODE:
        return read_str(p, 4);
    case OP_SHORT_BINUNICODE:
        return read_str(p, 1);
    case OP_BINPUT:
        return read_memo(p, 1, memo_put);
    case OP_LONG_BINPUT:
        return read_memo(p, 4, memo_put);
    case OP_MEMOIZE:
        return memo_put(p, p->n_memo);
    case OP_BINGET:
        return read_memo(p, 1, memo_get);
    case OP_LONG_BINGET:
        return read_memo(p, 4, memo_get);
    case OP_PROTO:
        return read_proto(p);
    case OP_FRAME:
        return read_frame(p);
    default:
        return refuse(p, op);
    }
}

static base_status_t step(sim_pickle_t *p, uint8_t op)
{
    switch (op) {
    case OP_MARK:
        return open_mark(p);
    case OP_EMPTY_LIST:
        return push_node(p, SIM_PICKLE_LIST);
    case OP_EMPTY_DICT:
        return push_node(p, SIM_PICKLE_DICT);
    case OP_EMPTY_TUPLE:
        return push_node(p, SIM_PICKLE_TUPLE);
    case OP_TUPLE1:
        return collect(p, SIM_PICKLE_TUPLE, 1);
    case OP_TUPLE2:
        return collect(p, SIM_PICKLE_TUPLE, 2);
    case OP_TUPLE3:
        return collect(p, SIM_PICKLE_TUPLE, 3);
    case OP_TUPLE:
        return collect_to_mark(p, SIM_PICKLE_TUPLE);
    case OP_LIST:
        return collect_to_mark(p, SIM_PICKLE_LIST);
    case OP_DICT:
        return collect_to_mark(p, SIM_PICKLE_DICT);
    case OP_APPEND:
        return extend(p, SIM_PICKLE_LIST, 1, false);
    case OP_SETITEM:
        return extend(p, SIM_PICKLE_DICT, 2, false);
    case OP_APPENDS:
        return extend_to_mark(p, SIM_PICKLE_LIST);
    case OP_SETITEMS:
        return extend_to_mark(p, SIM_PICKLE_DICT);
    default:
        return step_value(p, op);
    }
}

static base_status_t run(sim_pickle_t *p, sim_pickle_value_t *root_p)
{
    if (p->n == 0 || p->data[0] != OP_PROTO)
        return bad(p, "does not begin with PROTO: not a pickle of protocol 2 to 5");
    while (p->pos < p->n) {
        p->op_pos = p->pos;
        uint8_t op = p->data[p->pos++];
        if (op == OP_STOP) {
            if (p->n_stack != 1 || p->n_marks != 0)
                return bad(p, "STOP although values are left on the stack");
            unsigned height = 0;
            *root_p = p->stack[0];
            return close_child(p, NULL, root_p, &height);
        }
        base_status_t status = step(p, op);
        if (status != BASE_OK)
            return status;
    }
    p->op_pos = p->pos;
    return bad(p, "the file ends without STOP (cut off?)");
}

base_status_t sim_pickle_read(const void *data, size_t n, sim_pickle_reduce_f reduce, void *arg,
                              sim_pickle_t **pickle_p, sim_pickle_value_t *root_p, base_err_t *err)
{
    sim_pickle_t *p = base_xcalloc(1, sizeof(*p));
    *p = (sim_pickle_t){ .data = data, .n = n, .reduce = reduce, .reduce_arg = arg, .err = err };
    sim_pickle_value_t root;
    base_status_t status = run(p, &root);
    if (status != BASE_OK) {
        sim_pickle_destroy(p);
        return status;
    }
    free(p->stack);
    free(p->memo);
    p->stack = p->memo = NULL;
    *pickle_p = p;
    *root_p = root;
    return BASE_OK;
}

void sim_pickle_destroy(sim_pickle_t *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_nodes; i++)
        if (!p->nodes[i].is_reduced)
            free(p->nodes[i].u.items);
    free(p->nodes);
    free(p->stack);
    free(p->memo);
    free(p);
}

const sim_pickle_value_t *sim_pickle_items(const sim_pickle_t *p, sim_pickle_value_t value,
                                           size_t *n_p)
{
    *n_p = 0;
    if (!is_container(value))
        return NULL;
    *n_p = p->nodes[value.u.ref].n;
    return p->nodes[value.u.ref].u.items;
}

const sim_pickle_value_t *sim_pickle_find(const sim_pickle_t *p, const sim_pickle_value_t *items,
                                          size_t n, const char *key)
{
    for (size_t i = n / 2; i-- > 0;) /* of equal keys the last one counts, as in Python */
        if (sim_pickle_str_is(p, items[2 * i], key))
            return &items[2 * i + 1];
    return NULL;
}

const char *sim_pickle_str(const sim_pickle_t *p, sim_pickle_value_t value, size_t *bytes_p)
{
    *bytes_p = 0;
    if (value.kind != SIM_PICKLE_STR)
        return NULL;
    *bytes_p = value.bytes;
    return (const char *)p->data + value.u.ref;
}

bool sim_pickle_str_is(const sim_pickle_t *p, sim_pickle_value_t value, const char *text)
{
    size_t n = strlen(text);
    return value.kind == SIM_PICKLE_STR && value.bytes == n &&
           memcmp(p->data + value.u.ref, text, n) == 0;
}
