/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/routing.h"

#include "sim/base/infile.h"
#include "sim/base/rng.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Enough for the shares of experts to settle, few enough to draw for every layer of a large model.
 */
enum { SAMPLED_TOKENS = 512 };

/* A number for each of 1,024 experts in each of 1,000 layers is less. */
enum { MAX_FILE_BYTES = 16 << 20 };

static double normal(base_rng_t *rng)
{
    double r = sqrt(-2.0 * log(base_rng_uniform(rng)));
    return r * cos(6.283185307179586 * base_rng_uniform(rng));
}

/* Marsaglia and Tsang 2000; below 1 by the power of a uniform number. */
static double gamma_draw(base_rng_t *rng, double shape)
{
    if (shape < 1.0)
        return gamma_draw(rng, shape + 1.0) * pow(base_rng_uniform(rng), 1.0 / shape);
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = normal(rng), v = 1.0 + c * x;
        if (v <= 0.0)
            continue;
        v = v * v * v;
        if (log(base_rng_uniform(rng)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

static void draw_dirichlet(base_rng_t *rng, double concentration, double *weights, uint32_t n)
{
    for (uint32_t e = 0; e < n; e++)
        weights[e] = gamma_draw(rng, concentration);
}

static void draw_noisy_topk(base_rng_t *rng, double spread, double *weights, uint32_t n,
                            uint32_t topk)
{
    double *popularity = base_xcalloc(n, sizeof(*popularity));
    double *score = base_xcalloc(n, sizeof(*score));
    for (uint32_t e = 0; e < n; e++) {
        popularity[e] = spread * normal(rng);
        weights[e] = 0.0;
    }
    for (int token = 0; token < SAMPLED_TOKENS; token++) {
        for (uint32_t e = 0; e < n; e++)
            score[e] = popularity[e] - log(-log(base_rng_uniform(rng)));
        for (uint32_t k = 0; k < topk; k++) {
            uint32_t best = 0;
            for (uint32_t e = 1; e < n; e++)
                best = score[e] > score[best] ? e : best;
            score[best] = -INFINITY;
            weights[best] += 1.0;
        }
    }
    free(popularity);
    free(score);
}

/* Experts lie on the ranks in order, the same number on each. */
static void sum_ranks(const sim_routing_config_t *c, const double *weights, double *loads)
{
    double total = 0.0;
    for (uint32_t e = 0; e < c->n_experts; e++)
        total += weights[e];
    uint32_t per_rank = c->n_experts / c->n_ranks;
    for (uint32_t r = 0; r < c->n_ranks; r++) {
        double sum = 0.0;
        for (uint32_t e = r * per_rank; e < (r + 1) * per_rank; e++)
            sum += weights[e];
        loads[r] = sum / total * c->n_ranks;
    }
}

static base_status_t read_numbers(const char *text, double **values_p, uint32_t *n_p,
                                  base_err_t *err)
{
    double *values = NULL;
    uint32_t n = 0;
    static const char blanks[] = " ,\t\r";
    for (text += strspn(text, blanks); *text != '\0'; text += strspn(text, blanks)) {
        char *end;
        double v = strtod(text, &end);
        if (end == text || !(v >= 0.0 && v <= 1e12)) {
            free(values);
            return base_err_set(err, BASE_ERR_INVAL, "\"%.20s\" is not a number from 0 to 1e12",
                                text);
        }
        values = base_xrealloc(values, n + 1, sizeof(*values));
        values[n++] = v;
        text = end;
    }
    *values_p = values;
    *n_p = n;
    return BASE_OK;
}

static base_status_t fill_factors(sim_routing_t *r, const sim_routing_config_t *c,
                                  const double *values, uint32_t n, base_err_t *err)
{
    if (n != 1 && n != c->n_ranks)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%" PRIu32 " factors; give one, or one for each of the %" PRIu32
                            " expert parallel ranks",
                            n, c->n_ranks);
    for (uint32_t i = 0; i < r->n_layers * r->n_ranks; i++) {
        r->loads[i] = values[n == 1 ? 0 : i % r->n_ranks];
        if (r->loads[i] > c->n_ranks)
            return base_err_set(err, BASE_ERR_INVAL,
                                "%g is more than all tokens of the %" PRIu32
                                " expert parallel ranks",
                                r->loads[i], c->n_ranks);
    }
    r->is_same_on_all_ranks = n == 1;
    return BASE_OK;
}

/* One layer. */
static base_status_t fill_tokens(const sim_routing_config_t *c, const double *values, uint32_t n,
                                 double *loads, base_err_t *err)
{
    double total = 0.0;
    for (uint32_t i = 0; i < n; i++)
        total += values[i];
    if (n != c->n_experts || total <= 0.0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "tokens of %" PRIu32 " experts, %g in all; there are %" PRIu32
                            " experts",
                            n, total, c->n_experts);
    sum_ranks(c, values, loads);
    return BASE_OK;
}

static void repeat_first_layer(sim_routing_t *r)
{
    for (uint32_t layer = 1; layer < r->n_layers; layer++)
        memcpy(r->loads + (size_t)layer * r->n_ranks, r->loads, r->n_ranks * sizeof(*r->loads));
}

static base_status_t fill_line(const sim_routing_config_t *c, const char *line, double *loads,
                               base_err_t *err)
{
    if (strspn(line, "- \t\r") == strlen(line)) {
        for (uint32_t rank = 0; rank < c->n_ranks; rank++)
            loads[rank] = 1.0;
        return BASE_OK;
    }
    double *values = NULL;
    uint32_t n = 0;
    base_status_t status = read_numbers(line, &values, &n, err);
    if (status == BASE_OK)
        status = fill_tokens(c, values, n, loads, err);
    free(values);
    return status;
}

static base_status_t fill_lines(sim_routing_t *r, const sim_routing_config_t *c, const char *path,
                                char *text, base_err_t *err)
{
    uint32_t n_lines = 0, layer = 0;
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        n_lines++;
        line[strcspn(line, "#")] = '\0';
        if (line[strspn(line, " \t\r")] == '\0')
            continue;
        base_err_t inner;
        if (layer < r->n_layers &&
            fill_line(c, line, r->loads + (size_t)layer * r->n_ranks, &inner) != BASE_OK)
            return base_err_set(err, BASE_ERR_INVAL, "%s:%" PRIu32 ": %s", path, n_lines,
                                inner.text);
        layer++;
    }
    if (layer != 1 && layer != r->n_layers)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s: %" PRIu32 " layers; give one for all, or each of the %" PRIu32,
                            path, layer, r->n_layers);
    if (layer == 1)
        repeat_first_layer(r);
    return BASE_OK;
}

static base_status_t fill_file(sim_routing_t *r, const sim_routing_config_t *c, const char *path,
                               base_err_t *err)
{
    char *text;
    size_t length;
    path += strspn(path, " ");
    if (strcmp(path, "-") == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "tokens of experts cannot come from standard input");
    base_status_t status = base_infile_read(path, MAX_FILE_BYTES, &text, &length, err);
    if (status != BASE_OK)
        return status;
    status = strlen(text) == length
                 ? fill_lines(r, c, path, text, err)
                 : base_err_set(err, BASE_ERR_INVAL, "%s: has a zero byte", path);
    free(text);
    return status;
}

static base_status_t fill_draw(sim_routing_t *r, const sim_routing_config_t *c,
                               const double *values, uint32_t n, bool is_dirichlet, base_err_t *err)
{
    if (n < 1 || n > 2 || (is_dirichlet && values[0] <= 0.0) || values[0] > 1e6)
        return base_err_set(err, BASE_ERR_INVAL, "give %s up to 1e6 and a seed",
                            is_dirichlet ? "a concentration above 0" : "a spread");
    double *weights = base_xcalloc(c->n_experts, sizeof(*weights));
    base_rng_t rng = { n == 2 ? (uint64_t)values[1] : 1 };
    for (uint32_t layer = 0; layer < r->n_layers; layer++) {
        if (is_dirichlet)
            draw_dirichlet(&rng, values[0], weights, c->n_experts);
        else
            draw_noisy_topk(&rng, values[0], weights, c->n_experts, c->topk);
        sum_ranks(c, weights, r->loads + (size_t)layer * r->n_ranks);
    }
    free(weights);
    return BASE_OK;
}

static const char *after(const char *text, const char *word)
{
    size_t n = strlen(word);
    return strncmp(text, word, n) == 0 ? text + n : NULL;
}

static base_status_t fill(sim_routing_t *r, const sim_routing_config_t *c, const char *text,
                          base_err_t *err)
{
    const char *tokens = after(text, "tokens:"), *dirichlet = after(text, "dirichlet:"),
               *noisy = after(text, "noisy_topk:"), *file = after(text, "file:");
    if (file != NULL)
        return fill_file(r, c, file, err);
    const char *list = tokens != NULL      ? tokens
                       : dirichlet != NULL ? dirichlet
                       : noisy != NULL     ? noisy
                                           : text;
    double *values = NULL;
    uint32_t n = 0;
    base_status_t status = read_numbers(list, &values, &n, err);
    if (status != BASE_OK)
        return status;
    if (list == text) {
        status = fill_factors(r, c, values, n, err);
    } else if (tokens != NULL) {
        status = fill_tokens(c, values, n, r->loads, err);
        repeat_first_layer(r);
    } else {
        status = fill_draw(r, c, values, n, dirichlet != NULL, err);
    }
    free(values);
    return status;
}

base_status_t sim_routing_create(sim_routing_t **routing_p, const char *text,
                                 const sim_routing_config_t *c, base_err_t *err)
{
    sim_routing_t *r = base_xcalloc(1, sizeof(*r));
    *r = (sim_routing_t){
        .n_layers = c->n_layers,
        .n_ranks = c->n_ranks,
        .loads = base_xcalloc((size_t)c->n_layers * c->n_ranks, sizeof(*r->loads)),
    };
    base_status_t status = fill(r, c, text, err);
    if (status == BASE_OK)
        *routing_p = r;
    else
        sim_routing_destroy(r);
    return status;
}

void sim_routing_destroy(sim_routing_t *routing)
{
    if (routing == NULL)
        return;
    free(routing->loads);
    free(routing);
}
