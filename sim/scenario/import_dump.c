/* SPDX-License-Identifier: Apache-2.0
 * The argument dump that Megatron-LM prints at the start (training/arguments.py, _print_args):
 * "  name ......... value", alphabetic, between two lines of dashes; a log line may have a prefix
 * such as "0: " or a time stamp. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/scenario/import.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Split "prefix  name ..... value"; false when the line is not of that form. */
static bool split_line(char *line, char **name_p, char **value_p)
{
    char *dots = strstr(line, " ..");
    if (dots == NULL) /* long names have a single dot or none: "name . value" */
        dots = strstr(line, " . ");
    if (dots == NULL)
        return false;
    char *name = dots;
    while (name > line && (isalnum((unsigned char)name[-1]) || name[-1] == '_'))
        name--;
    char *value = dots + 1 + strspn(dots + 1, ".");
    if (name == dots || (*value != ' ' && *value != '\0'))
        return false;
    *dots = '\0';
    value += strspn(value, " ");
    size_t n = strlen(value);
    while (n > 0 && isspace((unsigned char)value[n - 1]))
        value[--n] = '\0';
    *name_p = name;
    *value_p = value;
    return true;
}

base_status_t sim_import_dump(sim_import_t *import, const char *name, const char *text,
                              base_err_t *err)
{
    char *copy = base_xstrdup(text), *rest = copy, *line;
    size_t n_found = 0;
    import->after_checks = true;
    for (unsigned long n = 1; (line = strsep(&rest, "\n")) != NULL; n++) {
        char *attribute, *value;
        if (strstr(line, "end of arguments") != NULL)
            break;
        if (!split_line(line, &attribute, &value))
            continue;
        char *origin = base_xasprintf("%s:%lu", name, n);
        sim_import_add_attribute(import, attribute, value, origin);
        free(origin);
        n_found++;
    }
    free(copy);
    if (n_found == 0)
        return base_err_set(err, BASE_ERR_PARSE, "%s: no line of the form \"name ..... value\"",
                            name);
    return BASE_OK;
}
