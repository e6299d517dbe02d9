/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_CLI_JSON_FILE_H
#define SIM_CLI_JSON_FILE_H

#include <jansson.h>

/* Write `root` to `path` ("-" = standard output) and release it. 0, else the exit code after a
 * message; an old file then stays as it was. */
int sim_cli_write_json(const char *path, json_t *root);

/* A list of the blank-separated words of `text`. */
json_t *sim_cli_json_words(const char *text);

#endif
