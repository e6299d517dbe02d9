/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/json_file.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"

#include <string.h>

int sim_cli_write_json(const char *path, json_t *root)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status == BASE_OK) {
        json_dumpf(root, base_outfile_stream(out), JSON_INDENT(2));
        fputc('\n', base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    json_decref(root);
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    return base_err_exit_code(status);
}

json_t *sim_cli_json_words(const char *text)
{
    json_t *list = json_array();
    for (const char *s = text; *s != '\0'; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        json_array_append_new(list, json_stringn(s, n));
        s += n;
    }
    return list;
}
