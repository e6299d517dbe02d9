/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any texts as two reports, a record separator between them, and what diff makes
 * of them. */
#include "config.h"

#include "sim/study/diff.h"
#include "tests/fuzz.h"

enum { SEPARATOR = 0x1e };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *null;
    if (null == NULL && (null = fopen("/dev/null", "w")) == NULL)
        abort();
    char *text = fuzz_text(data, size);
    const char *second = memchr(text, SEPARATOR, size);
    size_t n = second != NULL ? (size_t)(second - text) : size;
    json_t *a, *b = NULL, *diff;
    base_err_t err = { 0 };
    if (sim_diff_parse("a", text, n, &a, &err) != BASE_OK) {
        if (err.text[0] == '\0')
            abort();
        free(text);
        return 0;
    }
    if (second != NULL && sim_diff_parse("b", second + 1, size - n - 1, &b, &err) != BASE_OK)
        b = NULL;
    for (int rank = SIM_DIFF_WORST; rank <= 1; rank++) {
        if (sim_diff_compare(a, b != NULL ? b : a, rank, &diff, &err) != BASE_OK)
            continue;
        sim_diff_text(diff, null);
        json_decref(diff);
    }
    json_decref(a);
    json_decref(b);
    free(text);
    return 0;
}
