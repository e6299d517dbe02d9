/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/scenario/routing.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *s;
    bool *out;
    uint32_t n, n_layers;
    base_err_t *err;
} list_t;

static void skip(list_t *l, const char *set)
{
    l->s += strspn(l->s, set);
}

static base_status_t bad(const list_t *l, const char *what)
{
    return base_err_set(l->err, BASE_ERR_INVAL,
                        "%s at \"%.20s\"; use a number or a list such as [0]*3+[1]*58", what, l->s);
}

static base_status_t add_digit(list_t *l)
{
    if (*l->s != '0' && *l->s != '1')
        return bad(l, "0 or 1 expected");
    if (l->n == l->n_layers)
        return base_err_set(l->err, BASE_ERR_INVAL, "names more than the %" PRIu32 " layers",
                            l->n_layers);
    l->out[l->n++] = *l->s++ == '1';
    return BASE_OK;
}

static base_status_t repeat(list_t *l, uint32_t first)
{
    char *end;
    unsigned long times = strtoul(l->s, &end, 10);
    if (end == l->s)
        return bad(l, "a number expected");
    l->s = end;
    uint32_t length = l->n - first;
    if (times == 0)
        l->n = first;
    for (unsigned long i = 1; i < times; i++) {
        if (length > l->n_layers - l->n)
            return base_err_set(l->err, BASE_ERR_INVAL, "names more than the %" PRIu32 " layers",
                                l->n_layers);
        memcpy(l->out + l->n, l->out + first, length * sizeof(*l->out));
        l->n += length;
    }
    return BASE_OK;
}

/* One "[0, 1]*3". */
static base_status_t read_part(list_t *l)
{
    if (*l->s != '[')
        return bad(l, "[ expected");
    l->s++;
    uint32_t first = l->n;
    for (skip(l, " ,"); *l->s != ']'; skip(l, " ,")) {
        base_status_t status = add_digit(l);
        if (status != BASE_OK)
            return status;
    }
    l->s++;
    skip(l, " ");
    if (*l->s != '*')
        return BASE_OK;
    l->s++;
    skip(l, " ");
    base_status_t status = repeat(l, first);
    skip(l, " ");
    return status;
}

static base_status_t read_list(list_t *l)
{
    skip(l, " (\"'");
    for (;;) {
        base_status_t status = read_part(l);
        if (status != BASE_OK)
            return status;
        if (*l->s != '+')
            break;
        l->s++;
        skip(l, " ");
    }
    skip(l, " )\"'");
    if (*l->s != '\0')
        return bad(l, "end expected");
    if (l->n != l->n_layers)
        return base_err_set(l->err, BASE_ERR_INVAL, "names %" PRIu32 " of %" PRIu32 " layers", l->n,
                            l->n_layers);
    return BASE_OK;
}

base_status_t sim_layer_freq_parse(const char *text, uint32_t n_layers, bool *layer_is_moe,
                                   base_err_t *err)
{
    uint64_t every;
    if (text == NULL)
        text = "1";
    if (base_u64_parse(text, &every)) {
        if (every == 0)
            return base_err_set(err, BASE_ERR_INVAL, "must be at least 1");
        for (uint32_t i = 0; i < n_layers; i++)
            layer_is_moe[i] = i % every == 0;
        return BASE_OK;
    }
    list_t l = { .s = text, .out = layer_is_moe, .n_layers = n_layers, .err = err };
    return read_list(&l);
}
