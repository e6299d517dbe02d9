/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/pickle_read.h"
#include "sim/memory/pickle_write.h"
#include "sim/memory/snapshot_read.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define BYTES(literal) literal, sizeof(literal) - 1

/* The error text of a pickle that must be refused. */
static const char *refusal(const void *data, size_t n)
{
    static base_err_t err;
    sim_pickle_t *pickle = NULL;
    sim_pickle_value_t root;
    err.text[0] = '\0';
    base_status_t status = sim_pickle_read(data, n, NULL, NULL, &pickle, &root, &err);
    CU_ASSERT_EQUAL(status, BASE_ERR_PARSE);
    CU_ASSERT_PTR_NULL(pickle);
    return err.text;
}

static bool has(const char *text, const char *part)
{
    if (strstr(text, part) != NULL)
        return true;
    printf("# \"%s\" is not in \"%s\"\n", part, text);
    return false;
}

static void opcodes_that_call_code_are_refused_by_name_and_offset(void)
{
    static const struct {
        uint8_t op;
        const char *name;
    } ops[] = {
        { 'c', "GLOBAL" },
        { 0x93, "STACK_GLOBAL" },
        { 'R', "REDUCE" },
        { 'b', "BUILD" },
        { 'i', "INST" },
        { 'o', "OBJ" },
        { 0x81, "NEWOBJ" },
        { 0x92, "NEWOBJ_EX" },
        { 0x82, "EXT1" },
        { 0x83, "EXT2" },
        { 0x84, "EXT4" },
        { 'P', "PERSID" },
        { 'Q', "BINPERSID" },
        { 'F', "FLOAT" },
        { 'I', "INT" },
        { 'L', "LONG" },
        { 'S', "STRING" },
        { 'T', "BINSTRING" },
        { 'U', "SHORT_BINSTRING" },
        { 'V', "UNICODE" },
        { 'B', "BINBYTES" },
        { 'C', "SHORT_BINBYTES" },
        { '0', "POP" },
        { '1', "POP_MARK" },
        { '2', "DUP" },
        { 'g', "GET" },
        { 'p', "PUT" },
        { 0x8b, "LONG4" },
        { 0x8d, "BINUNICODE8" },
        { 0x8e, "BINBYTES8" },
        { 0x8f, "EMPTY_SET" },
        { 0x90, "ADDITEMS" },
        { 0x91, "FROZENSET" },
        { 0x96, "BYTEARRAY8" },
        { 0x97, "NEXT_BUFFER" },
        { 0x98, "READONLY_BUFFER" },
    };
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        uint8_t data[] = { 0x80, 4, 'N', ops[i].op, '.' };
        char want[64];
        snprintf(want, sizeof(want), "offset 3: opcode %s is not accepted", ops[i].name);
        CU_ASSERT_TRUE(has(refusal(data, sizeof(data)), want));
    }
}

static void every_other_byte_is_refused_or_read_without_a_crash(void)
{
    unsigned n_accepted = 0;
    for (unsigned op = 0; op < 256; op++) {
        uint8_t data[] = { 0x80, 4, (uint8_t)op, '.' };
        sim_pickle_t *pickle = NULL;
        sim_pickle_value_t root;
        base_err_t err;
        if (sim_pickle_read(data, sizeof(data), NULL, NULL, &pickle, &root, &err) == BASE_OK)
            n_accepted++;
        sim_pickle_destroy(pickle);
    }
    CU_ASSERT_EQUAL(n_accepted, 6); /* N, True, False, [], {}, () */
}

static void malformed_pickles_say_what_is_wrong(void)
{
    static const struct {
        const char *data;
        size_t n;
        const char *want;
    } cases[] = {
        { BYTES(""), "does not begin with PROTO" },
        { BYTES("(lp0\n."), "does not begin with PROTO" },
        { BYTES("\x80\x01N."), "protocol 1; 2 to 5 are read" },
        { BYTES("\x80\x06N."), "protocol 6" },
        { BYTES("\x80\x02"), "without STOP" },
        { BYTES("\x80\x02N"), "without STOP" },
        { BYTES("\x80\x02NN."), "values are left" },
        { BYTES("\x80\x02."), "values are left" },
        { BYTES("\x80\x02(N."), "values are left" },
        { BYTES("\x80\x02J\x01\x02"), "ends in the middle of a value" },
        { BYTES("\x80\x02X\xff\xff\xff\xffgo."), "string longer than the rest" },
        { BYTES("\x80\x04\x8c\x09short."), "string longer than the rest" },
        { BYTES("\x80\x02\x8a\xff\x01."), "ends in the middle of a value" },
        { BYTES("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff]."), "frame longer than the rest" },
        { BYTES("\x80\x02h\x00."), "never stored" },
        { BYTES("\x80\x02Nr\xff\xff\xff\xff."), "memo index too high" },
        { BYTES("\x80\x02q\x00."), "nothing to remember" },
        { BYTES("\x80\x02]e."), "no MARK" },
        { BYTES("\x80\x02}(Ne."), "not a list" },
        { BYTES("\x80\x02](NNu."), "not a dictionary" },
        { BYTES("\x80\x02}(Nu."), "key without a value" },
        { BYTES("\x80\x02}(NNu."), "neither a string nor a whole number" },
        { BYTES("\x80\x02(Na."), "the stack is empty" },
        { BYTES("\x80\x02](a."), "the stack is empty" },
        { BYTES("\x80\x02\x86."), "the stack is empty" },
        { BYTES("\x80\x02]q\x00h\x00"
                "a."),
          "holds itself" },
        { BYTES("\x80\x02]q\x00]h\x00"
                "aa."),
          "changes after it was complete" },
        { BYTES("\x80\x02\xff."), "0xff is no opcode" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CU_ASSERT_TRUE(has(refusal(cases[i].data, cases[i].n), cases[i].want));
}

static void deep_nesting_is_refused_and_64_is_read(void)
{
    uint8_t data[300] = { 0x80, 2 };
    for (unsigned depth = 64; depth <= 65; depth++) {
        memset(data + 2, ']', depth);
        memset(data + 2 + depth, 'a', depth - 1);
        data[2 + 2 * depth - 1] = '.';
        sim_pickle_t *pickle = NULL;
        sim_pickle_value_t root;
        base_err_t err;
        base_status_t status =
            sim_pickle_read(data, 2 + 2 * depth, NULL, NULL, &pickle, &root, &err);
        CU_ASSERT_EQUAL(status, depth == 64 ? BASE_OK : BASE_ERR_PARSE);
        sim_pickle_destroy(pickle);
    }
    memset(data + 2, '(', 65);
    CU_ASSERT_TRUE(has(refusal(data, 67), "nested more than 64 deep"));
}

/* Files of one opcode repeated are the worst: each must be refused or read in bounded memory. */
static void memory_is_bounded_by_the_size_of_the_file(void)
{
    static const struct {
        const char *unit, *want;
    } units[] = {
        { "N", "too many values" },
        { "]", "too many values" },
        { "}", "too many values" },
        { "(Nt", "too many values" },
        { "](Ne", "too many values" },
        { "\x88", "too many values" },
        { "Nq\x01", "too many values" },
        { "N\x94\x94\x94\x94\x94\x94\x94\x94", "memo index too high" },
        { "))))))))(t", "too many values" },
    };
    size_t n = 8U << 20;
    uint8_t *data = base_xcalloc(n, 1);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t unit = strlen(units[i].unit);
        data[0] = 0x80;
        data[1] = 4;
        data[2] = ']';
        data[3] = '(';
        for (size_t at = 4; at < n; at++)
            data[at] = (uint8_t)units[i].unit[(at - 4) % unit];
        CU_ASSERT_TRUE(has(refusal(data, n), units[i].want));
    }
    /* One more pattern that fills many batches: elements are kept, the stack is not. */
    size_t at = 2;
    data[at++] = ']';
    while (at + 1002 < n) {
        data[at++] = '(';
        memset(data + at, 'N', 1000);
        at += 1000;
        data[at++] = 'e';
    }
    CU_ASSERT_TRUE(has(refusal(data, at), "too many elements"));
    for (at = 3; at + 2 < n; at += 2) /* a list of empty lists */
        memcpy(data + at, "]a", 2);
    CU_ASSERT_TRUE(has(refusal(data, at), "too many lists and dictionaries"));
    free(data);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    CU_ASSERT_TRUE(usage.ru_maxrss < 512 * 1024); /* KiB, for 8 MiB of file */
}

static void values_are_read_exactly(void)
{
    static const char data[] = "\x80\x04\x95\x3e\0\0\0\0\0\0\0](K\xffM\xff\xffJ\xff\xff\xff\xff"
                               "\x8a\x00\x8a\x01\x80\x8a\x06\x00\x00\x00\x00\x00\x10"
                               "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"
                               "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01"
                               "G\x3f\xf8\0\0\0\0\0\0\x88\x89N\x8c\x02hie.";
    static const int64_t ints[] = { 255, 65535, -1, 0, -128, INT64_C(0x100000000000), INT64_MAX };
    sim_pickle_t *pickle = NULL;
    sim_pickle_value_t root;
    base_err_t err;
    base_status_t status =
        sim_pickle_read(data, sizeof(data) - 1, NULL, NULL, &pickle, &root, &err);
    CU_ASSERT_EQUAL_FATAL(status, BASE_OK);
    size_t n;
    const sim_pickle_value_t *items = sim_pickle_items(pickle, root, &n);
    CU_ASSERT_EQUAL_FATAL(n, 13);
    for (size_t i = 0; i < 7; i++) {
        CU_ASSERT_EQUAL(items[i].kind, SIM_PICKLE_INT);
        CU_ASSERT_EQUAL(items[i].u.i, ints[i]);
    }
    CU_ASSERT_EQUAL(items[7].kind, SIM_PICKLE_BIG);
    CU_ASSERT_EQUAL(items[8].u.f, 1.5);
    CU_ASSERT_TRUE(items[9].kind == SIM_PICKLE_BOOL && items[9].u.i == 1);
    CU_ASSERT_TRUE(items[10].kind == SIM_PICKLE_BOOL && items[10].u.i == 0);
    CU_ASSERT_EQUAL(items[11].kind, SIM_PICKLE_NONE);
    CU_ASSERT_TRUE(sim_pickle_str_is(pickle, items[12], "hi"));
    sim_pickle_destroy(pickle);
}

static void what_is_written_is_read_back(void)
{
    static const int64_t ints[] = { 0,
                                    255,
                                    256,
                                    65535,
                                    65536,
                                    INT32_MAX,
                                    INT64_C(1) << 31,
                                    -1,
                                    INT32_MIN,
                                    -(INT64_C(1) << 40),
                                    INT64_C(1) << 39,
                                    (INT64_C(1) << 53) - 1,
                                    INT64_MAX,
                                    INT64_MIN };
    enum { N_INTS = sizeof(ints) / sizeof(ints[0]), N_ITEMS = 2500 };
    char *data = NULL;
    size_t n_data = 0;
    FILE *out = open_memstream(&data, &n_data);
    sim_pickle_writer_t *w = sim_pickle_writer_create(out);
    sim_pickle_begin_list(w);
    for (size_t i = 0; i < N_ITEMS; i++) {
        sim_pickle_element(w);
        sim_pickle_put_int(w, ints[i % N_INTS]);
    }
    sim_pickle_element(w);
    sim_pickle_begin_dict(w);
    for (int i = 0; i < 400; i++) { /* more texts than a one-byte memo index counts */
        char key[16];
        snprintf(key, sizeof(key), "key%d", i / 2);
        sim_pickle_put_str(w, key);
        sim_pickle_put_float(w, i);
    }
    sim_pickle_end_dict(w);
    sim_pickle_end_list(w);
    sim_pickle_writer_finish(w);
    fclose(out);

    sim_pickle_t *pickle = NULL;
    sim_pickle_value_t root;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_pickle_read(data, n_data, NULL, NULL, &pickle, &root, &err), BASE_OK);
    size_t n, n_dict;
    const sim_pickle_value_t *items = sim_pickle_items(pickle, root, &n);
    CU_ASSERT_EQUAL_FATAL(n, N_ITEMS + 1);
    for (size_t i = 0; i < N_ITEMS; i++)
        CU_ASSERT_TRUE(items[i].kind == SIM_PICKLE_INT && items[i].u.i == ints[i % N_INTS]);
    const sim_pickle_value_t *dict = sim_pickle_items(pickle, items[N_ITEMS], &n_dict);
    CU_ASSERT_EQUAL(n_dict, 800);
    const sim_pickle_value_t *v = sim_pickle_find(pickle, dict, n_dict, "key199");
    CU_ASSERT_PTR_NOT_NULL_FATAL(v);
    CU_ASSERT_EQUAL(v->u.f, 399); /* the last of two equal keys */
    sim_pickle_destroy(pickle);
    free(data);
}

static sim_snapshot_t *load(const char *name)
{
    char *path = base_xasprintf("%s/tests/data/snapshots/%s", getenv("TOP_SRCDIR"), name);
    sim_snapshot_t *snap = NULL;
    base_err_t err = { 0 };
    if (sim_snapshot_read(path, &snap, &err) != BASE_OK)
        printf("# %s\n", err.text);
    free(path);
    return snap;
}

/* Figures of the file: what Python says of the same pickle. */
static void snapshots_of_every_protocol_are_read(void)
{
    static const struct {
        const char *name;
        size_t n_segments, n_events;
        const char *conf;
    } cases[] = {
        { "edge_coalesce_large.p2.pickle", 1, 71, "" },
        { "edge_events.p3.pickle", 3, 30, "" },
        { "edge_exp_grow.p4.pickle", 1, 40, "expandable_segments:True" },
        { "edge_exp_unmap_middle.p5.pickle", 2, 18, "expandable_segments:True" },
        { "edge_maxsplit.p4.pickle", 8, 30, "max_split_size_mb:128" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_snapshot_t *s = load(cases[i].name);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(s->n_segments, cases[i].n_segments);
        CU_ASSERT_EQUAL_FATAL(s->n_traces, 1);
        CU_ASSERT_EQUAL(s->traces[0].n, cases[i].n_events);
        CU_ASSERT_STRING_EQUAL(s->conf, cases[i].conf);
        CU_ASSERT_FALSE(s->is_old_layout);
        sim_snapshot_destroy(s);
    }
    sim_snapshot_t *s = load("edge_exp_grow.p4.pickle");
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_TRUE(s->segments[0].is_large && s->segments[0].is_expandable);
    CU_ASSERT_FALSE(s->segments[0].is_private);
    CU_ASSERT_EQUAL(s->events[0].action, SIM_TRACE_SEGMENT_MAP);
    CU_ASSERT_EQUAL(s->last_us - s->first_us, 39);
    sim_snapshot_destroy(s);
}

static void the_first_layout_is_read_too(void)
{
    sim_snapshot_t *old = load("old_layout.p4.pickle"), *new = load("edge_events.p3.pickle");
    CU_ASSERT_PTR_NOT_NULL_FATAL(old);
    CU_ASSERT_PTR_NOT_NULL_FATAL(new);
    CU_ASSERT_TRUE(old->is_old_layout);
    CU_ASSERT_EQUAL_FATAL(old->n_blocks, new->n_blocks);
    for (size_t i = 0; i < old->n_blocks; i++) {
        CU_ASSERT_EQUAL(old->blocks[i].addr, new->blocks[i].addr);
        CU_ASSERT_EQUAL(old->blocks[i].bytes, new->blocks[i].bytes);
        CU_ASSERT_EQUAL(old->blocks[i].state, new->blocks[i].state);
        if (new->blocks[i].state != SIM_SNAPSHOT_INACTIVE)
            CU_ASSERT_EQUAL(old->blocks[i].requested_bytes, new->blocks[i].requested_bytes);
    }
    sim_snapshot_destroy(old);
    sim_snapshot_destroy(new);
}

/* Every prefix of a snapshot is refused, none crashes. */
static void a_snapshot_cut_off_anywhere_is_refused(void)
{
    char *path =
        base_xasprintf("%s/tests/data/snapshots/edge_events.p3.pickle", getenv("TOP_SRCDIR"));
    FILE *in = fopen(path, "rb");
    free(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    static uint8_t data[1 << 16];
    size_t n = fread(data, 1, sizeof(data), in);
    fclose(in);
    for (size_t cut = 0; cut < n; cut++) {
        sim_snapshot_t *snap = NULL;
        base_err_t err = { 0 };
        uint8_t *copy = malloc(cut > 0 ? cut : 1); /* exact size: an over-read is seen */
        memcpy(copy, data, cut);
        CU_ASSERT_EQUAL(sim_snapshot_parse(copy, cut, &snap, &err), BASE_ERR_PARSE);
        CU_ASSERT_TRUE(err.text[0] != '\0');
        free(copy);
    }
}

static void pickles_that_are_no_snapshot_are_refused(void)
{
    static const struct {
        const char *data;
        size_t n;
        const char *want;
    } cases[] = {
        { BYTES("\x80\x02N."), "not a memory snapshot" },
        { BYTES("\x80\x02}."), "not a memory snapshot" },
        { BYTES("\x80\x02](K\x01"
                "e."),
          "" },
        { BYTES("\x80\x02}(X\x06\0\0\0actionX\x05\0\0\0allocu."), "no 'addr'" },
        { BYTES("\x80\x02}(X\x05\0\0\0stateNu."), "a block has no 'size'" },
        { BYTES("\x80\x02}(X\x06\0\0\0blocks]u."), "a segment has no 'address'" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_snapshot_t *snap = NULL;
        base_err_t err = { 0 };
        base_status_t status = sim_snapshot_parse(cases[i].data, cases[i].n, &snap, &err);
        if (cases[i].want[0] != '\0') {
            CU_ASSERT_EQUAL(status, BASE_ERR_PARSE);
            CU_ASSERT_TRUE(has(err.text, cases[i].want));
        }
        if (status == BASE_OK)
            sim_snapshot_destroy(snap);
    }
}

static CU_TestInfo tests[] = {
    { "opcodes that call code are refused by name and offset",
      opcodes_that_call_code_are_refused_by_name_and_offset },
    { "every other byte is refused or read without a crash",
      every_other_byte_is_refused_or_read_without_a_crash },
    { "malformed pickles say what is wrong", malformed_pickles_say_what_is_wrong },
    { "deep nesting is refused and 64 is read", deep_nesting_is_refused_and_64_is_read },
    { "memory is bounded by the size of the file", memory_is_bounded_by_the_size_of_the_file },
    { "values are read exactly", values_are_read_exactly },
    { "what is written is read back", what_is_written_is_read_back },
    { "snapshots of every protocol are read", snapshots_of_every_protocol_are_read },
    { "the first layout is read too", the_first_layout_is_read_too },
    { "a snapshot cut off anywhere is refused", a_snapshot_cut_off_anywhere_is_refused },
    { "pickles that are no snapshot are refused", pickles_that_are_no_snapshot_are_refused },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "pickle", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
