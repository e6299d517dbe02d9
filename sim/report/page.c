/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/page.h"

#include "sim/report/page_files.h"

#include <string.h>

/* Text between tags, or in an attribute. */
static void write_escaped(const char *text, FILE *out)
{
    for (const char *s = text; *s != '\0'; s++) {
        switch (*s) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*s, out);
        }
    }
}

/* JSON inside a script element: nothing in it may look like a tag or a comment. Outside strings
 * JSON has none of these characters, and inside strings the escape means the same. */
static int write_json_part(const char *text, size_t n, void *arg)
{
    FILE *out = arg;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '<' || text[i] == '>' || text[i] == '&')
            fprintf(out, "\\u%04x", (unsigned)text[i]);
        else
            fputc(text[i], out);
    }
    return 0;
}

static void write_lines(const char *const *lines, FILE *out)
{
    for (; *lines != NULL; lines++)
        fputs(*lines, out);
}

void sim_page_write(const json_t *page, const char *text, FILE *out)
{
    for (const char *const *line = sim_page_html; *line != NULL; line++) {
        if (strcmp(*line, "<!-- style -->\n") == 0)
            write_lines(sim_page_css, out);
        else if (strcmp(*line, "<!-- program -->\n") == 0)
            write_lines(sim_page_js, out);
        else if (strcmp(*line, "<!-- data -->\n") == 0)
            json_dump_callback(page, write_json_part, out, JSON_COMPACT);
        else if (strcmp(*line, "<!-- text -->\n") == 0)
            write_escaped(text, out);
        else
            fputs(*line, out);
    }
}
