/* SPDX-License-Identifier: Apache-2.0
 * Enough of the shell's grammar to read the arguments of a training script without running it:
 * quoting, line continuations, comments, here-documents, variables, arrays and integer arithmetic.
 * What only running could tell (a command substitution, a variable that the text does not assign)
 * is kept in the word as SHELL_UNKNOWN name SHELL_UNKNOWN_END. */
#ifndef SIM_SCENARIO_SHELL_TEXT_H
#define SIM_SCENARIO_SHELL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { SHELL_UNKNOWN = 1, SHELL_UNKNOWN_END = 2, SHELL_MAX_VARIABLES = 1000 };

typedef struct {
    char **text;
    unsigned long *line; /* 1-based line on which each word starts */
    size_t n;
} shell_words_t;

typedef struct {
    char *name;
    shell_words_t value;   /* one word, or the elements of an array */
    size_t n_chars, n_has; /* of the first word, where text was appended; its room */
} shell_variable_t;

typedef struct {
    const char *pos;    /* the next character */
    unsigned long line; /* of pos */
    shell_variable_t *variables;
    size_t n_variables;
    unsigned long open_quote_line; /* of a quote that nothing closes; 0 = none */
    size_t n_bytes;    /* produced by expansion so far; beyond a limit everything is unknown */
    bool has_too_many; /* variables: those beyond a limit were forgotten */
    void (*comment)(const char *line, void *ctx); /* called for "#..." comments; may be NULL */
    void *ctx;
} shell_text_t;

/* How a statement ended. */
typedef enum {
    SHELL_END_LINE,
    SHELL_END_AND,
    SHELL_END_OR,
    SHELL_END_CASE,
    SHELL_END_TEXT
} shell_end_t;

void shell_text_init(shell_text_t *sh, const char *text);
void shell_text_fini(shell_text_t *sh);

void shell_words_fini(shell_words_t *words);

/* Read one simple statement: its assignments take effect at once when `run`, its words are expanded
 * into `words` (zeroed by the caller). Assignments of a word list "export A=1" count too. */
shell_end_t shell_text_statement(shell_text_t *sh, bool run, shell_words_t *words);

/* Assign `value` to `name`. */
void shell_text_assign(shell_text_t *sh, const char *name, const char *value);

/* The value of a variable (the first element of an array), or NULL. */
const char *shell_text_value(const shell_text_t *sh, const char *name);

#endif
