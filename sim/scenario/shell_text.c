/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/shell_text.h"

#include "sim/base/xmem.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAME = 128,
    MAX_EXPANDED = 4 << 20,
    MAX_NESTING = 32,
    MAX_SHOWN = 400, /* of what is not known */
    MAX_NUMBER = 20, /* digits of a number that may be counted with */
};
enum { NESTING_BYTES = MAX_EXPANDED / MAX_NESTING };

/* A word that is being built; an unquoted expansion may end it and start the next. */
typedef struct {
    shell_words_t *words;
    char *text;
    size_t n, capacity;
    bool open; /* there is a word, though it may be empty ("") */
    unsigned long line;
} builder_t;

static void expand_dollar(shell_text_t *sh, builder_t *b, bool quoted);

void shell_text_init(shell_text_t *sh, const char *text)
{
    memset(sh, 0, sizeof(*sh));
    sh->pos = text;
    sh->line = 1;
}

void shell_words_fini(shell_words_t *words)
{
    for (size_t i = 0; i < words->n; i++)
        free(words->text[i]);
    free(words->text);
    free(words->line);
    memset(words, 0, sizeof(*words));
}

void shell_text_fini(shell_text_t *sh)
{
    for (size_t i = 0; i < sh->n_variables; i++) {
        free(sh->variables[i].name);
        shell_words_fini(&sh->variables[i].value);
    }
    free(sh->variables);
}

static void push_word(shell_words_t *words, const char *text, unsigned long line)
{
    words->text = base_xgrow(words->text, words->n, sizeof(*words->text));
    words->line = base_xgrow(words->line, words->n, sizeof(*words->line));
    words->text[words->n] = base_xstrdup(text);
    words->line[words->n++] = line;
}

static void put(builder_t *b, char c)
{
    if (b->n + 2 > b->capacity) {
        b->capacity = b->capacity * 2 + 32;
        b->text = base_xrealloc(b->text, b->capacity, 1);
    }
    b->text[b->n++] = c;
    b->text[b->n] = '\0';
    b->open = true;
}

static void put_text(builder_t *b, const char *text)
{
    for (; *text != '\0'; text++)
        put(b, *text);
}

static void end_word(builder_t *b)
{
    if (b->open)
        push_word(b->words, b->n > 0 ? b->text : "", b->line);
    b->open = false;
    b->n = 0;
}

static void put_unknown(builder_t *b, const char *what, size_t n)
{
    put(b, SHELL_UNKNOWN);
    if (n > MAX_SHOWN)
        n = MAX_SHOWN;
    for (size_t i = 0; i < n; i++)
        if (what[i] != '\n')
            put(b, what[i]);
    put(b, SHELL_UNKNOWN_END);
}

/* Unquoted text is split at blanks; quoted text is not. */
static void put_expanded(shell_text_t *sh, builder_t *b, const char *text, bool quoted)
{
    if (sh->n_bytes <= MAX_EXPANDED)
        sh->n_bytes += strlen(text);
    if (sh->n_bytes > MAX_EXPANDED) {
        put_unknown(b, "too much text", 13);
        return;
    }
    for (; *text != '\0'; text++) {
        if (!quoted && strchr(" \t\n", *text) != NULL)
            end_word(b);
        else
            put(b, *text);
    }
}

static shell_variable_t *find_variable(const shell_text_t *sh, const char *name)
{
    for (size_t i = 0; i < sh->n_variables; i++)
        if (strcmp(sh->variables[i].name, name) == 0)
            return &sh->variables[i];
    return NULL;
}

/* NULL: there are too many. */
static shell_variable_t *get_variable(shell_text_t *sh, const char *name)
{
    shell_variable_t *v = find_variable(sh, name);
    if (v != NULL)
        return v;
    if (sh->n_variables == SHELL_MAX_VARIABLES) {
        sh->has_too_many = true;
        return NULL;
    }
    sh->variables = base_xgrow(sh->variables, sh->n_variables, sizeof(*sh->variables));
    v = &sh->variables[sh->n_variables++];
    memset(v, 0, sizeof(*v));
    v->name = base_xstrdup(name);
    return v;
}

void shell_text_assign(shell_text_t *sh, const char *name, const char *value)
{
    shell_variable_t *v = get_variable(sh, name);
    if (v == NULL)
        return;
    shell_words_fini(&v->value);
    push_word(&v->value, value, sh->line);
    v->n_has = 0;
}

const char *shell_text_value(const shell_text_t *sh, const char *name)
{
    const shell_variable_t *v = find_variable(sh, name);
    return v != NULL && v->value.n > 0 ? v->value.text[0] : NULL;
}

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static void next(shell_text_t *sh)
{
    if (*sh->pos == '\n')
        sh->line++;
    if (*sh->pos != '\0')
        sh->pos++;
}

/* The length of a bracketed text that starts after its opening bracket; the closing one is not
 * counted. Quotes inside are respected. */
static size_t bracketed(const char *s, char open, char close)
{
    size_t depth = 1;
    char quote = 0;
    for (size_t i = 0; s[i] != '\0'; i++) {
        if (s[i] == '\\' && s[i + 1] != '\0')
            i++;
        else if (quote != 0)
            quote = s[i] == quote ? 0 : quote;
        else if (s[i] == '\'' || s[i] == '"')
            quote = s[i];
        else if (s[i] == open)
            depth++;
        else if (s[i] == close && --depth == 0)
            return i;
    }
    return strlen(s);
}

/* Integer expressions: + - * / % and parentheses, names with or without $. */
typedef struct {
    const shell_text_t *sh;
    const char *s;
    int depth;
    bool ok;
} arithmetic_t;

static long long sum(arithmetic_t *a);

static long long operand(arithmetic_t *a)
{
    a->s += strspn(a->s, " \t\n");
    if (*a->s == '(' && a->depth < MAX_NESTING) {
        a->s++;
        a->depth++;
        long long value = sum(a);
        a->depth--;
        a->ok = a->ok && *a->s == ')';
        a->s += *a->s == ')';
        return value;
    }
    char name[MAX_NAME];
    size_t n = 0;
    a->s += strspn(a->s, "${");
    while (n < sizeof(name) - 1 && is_name_char(a->s[n])) {
        name[n] = a->s[n];
        n++;
    }
    name[n] = '\0';
    a->s += n;
    a->s += *a->s == '}';
    const char *text = isdigit((unsigned char)name[0]) ? name : shell_text_value(a->sh, name);
    char *end;
    if (text != NULL && strnlen(text, MAX_NUMBER + 1) > MAX_NUMBER)
        text = NULL;
    long long value = text != NULL ? strtoll(text, &end, 10) : 0;
    /* A value far from overflow keeps every operation below defined. */
    a->ok = a->ok && text != NULL && *text != '\0' && *end == '\0' && value < (1LL << 31) &&
            value > -(1LL << 31);
    return value;
}

static long long product(arithmetic_t *a)
{
    long long value = operand(a);
    for (;;) {
        a->s += strspn(a->s, " \t\n");
        char op = *a->s;
        if (op != '*' && op != '/' && op != '%')
            return value;
        a->s++;
        long long right = operand(a);
        a->ok = a->ok && value < (1LL << 31) && (op == '*' || right != 0);
        if (!a->ok)
            return 0;
        value = op == '*' ? value * right : op == '/' ? value / right : value % right;
    }
}

static long long sum(arithmetic_t *a)
{
    long long value = product(a);
    for (;;) {
        a->s += strspn(a->s, " \t\n");
        char op = *a->s;
        if (op != '+' && op != '-')
            return value;
        a->s++;
        long long right = product(a);
        if (!a->ok)
            return 0;
        value = op == '+' ? value + right : value - right;
        a->ok = value < (1LL << 62) && value > -(1LL << 62);
    }
}

/* At "((", after the dollar. */
static void expand_arithmetic(shell_text_t *sh, builder_t *b)
{
    size_t n = bracketed(sh->pos + 1, '(', ')');
    char *text = base_xcalloc(n + 1, 1);
    memcpy(text, sh->pos + 1, n);
    arithmetic_t a = { sh, text + 1, 0, n > 1 && text[n - 1] == ')' };
    if (a.ok)
        text[n - 1] = '\0';
    long long value = sum(&a);
    char number[24];
    snprintf(number, sizeof(number), "%lld", value);
    if (a.ok && *a.s == '\0')
        put_text(b, number);
    else
        put_unknown(b, sh->pos - 1, n + 3);
    for (size_t i = 0; i < n + 2; i++)
        next(sh);
    free(text);
}

static void expand_variable(shell_text_t *sh, builder_t *b, const char *name, bool all, bool quoted)
{
    const shell_variable_t *v = find_variable(sh, name);
    if (v == NULL) {
        char what[MAX_NAME + 2];
        snprintf(what, sizeof(what), "$%s", name);
        put_unknown(b, what, strlen(what));
        return;
    }
    for (size_t i = 0; i < v->value.n && (all || i == 0); i++) {
        if (i > 0)
            end_word(b);
        if (!b->open) /* the word stands where the variable got it */
            b->line = v->value.line[i];
        put_expanded(sh, b, v->value.text[i], quoted);
        if (quoted)
            b->open = true;
    }
}

/* The word of ${A:-word}, which may hold "$B" and "${B:-other}". */
static void expand_default(shell_text_t *sh, builder_t *b, const char *word, bool quoted)
{
    for (const char *s = word; *s != '\0'; s++) {
        if (*s == '$' && sh->n_bytes < MAX_EXPANDED) {
            shell_text_t inner = *sh;
            inner.pos = s;
            inner.n_bytes += NESTING_BYTES; /* bounds the nesting */
            expand_dollar(&inner, b, quoted);
            sh->n_bytes = inner.n_bytes - NESTING_BYTES;
            s = inner.pos - 1;
        } else if (!quoted && (*s == ' ' || *s == '\t')) {
            end_word(b);
        } else if (*s != '"' && *s != '\'') {
            put(b, *s);
        }
    }
}

/* At "{", after the dollar: ${N}, ${N[@]}, ${N:-word}, ${N:=word}, ${N-word}; other forms are
 * unknown. */
static void expand_braces(shell_text_t *sh, builder_t *b, bool quoted)
{
    char name[MAX_NAME];
    size_t n = 0, length = bracketed(sh->pos + 1, '{', '}');
    const char *s = sh->pos + 1, *end = s + length, *start = sh->pos - 1;
    while (s < end && is_name_char(*s) && n < sizeof(name) - 1)
        name[n++] = *s++;
    name[n] = '\0';
    bool all = strncmp(s, "[@]", 3) == 0 || strncmp(s, "[*]", 3) == 0;
    s += all ? 3 : 0;
    const char *value = shell_text_value(sh, name);
    bool colon = *s == ':';
    bool has_default = (s[colon] == '-' || s[colon] == '=') && s < end;
    if (s == end && n > 0) {
        expand_variable(sh, b, name, all, quoted);
    } else if (has_default && value != NULL && !(colon && *value == '\0')) {
        put_expanded(sh, b, value, quoted);
    } else if (has_default) {
        s += 1 + colon;
        char *word = base_xasprintf("%.*s", s < end ? (int)(end - s) : 0, s);
        expand_default(sh, b, word, quoted);
        free(word);
    } else {
        put_unknown(b, start, length + 3);
    }
    while (sh->pos < end)
        next(sh);
    next(sh);
}

/* At "$". */
static void expand_dollar(shell_text_t *sh, builder_t *b, bool quoted)
{
    next(sh);
    if (sh->pos[0] == '(' && sh->pos[1] == '(') {
        expand_arithmetic(sh, b);
    } else if (sh->pos[0] == '(') {
        size_t n = bracketed(sh->pos + 1, '(', ')');
        put_unknown(b, sh->pos - 1, n + 3);
        for (size_t i = 0; i < n + 2; i++)
            next(sh);
    } else if (sh->pos[0] == '{') {
        expand_braces(sh, b, quoted);
    } else if (is_name_char(sh->pos[0])) {
        char name[MAX_NAME];
        size_t n = 0;
        while (is_name_char(*sh->pos) && n < sizeof(name) - 1) {
            name[n++] = *sh->pos;
            next(sh);
        }
        name[n] = '\0';
        expand_variable(sh, b, name, false, quoted);
    } else if (sh->pos[0] != '\0' && strchr("@*#?$!-", sh->pos[0]) != NULL) {
        put_unknown(b, sh->pos - 1, 2);
        next(sh);
    } else {
        put(b, '$');
    }
}

static void read_quoted(shell_text_t *sh, builder_t *b)
{
    char quote = *sh->pos;
    unsigned long line = sh->line;
    next(sh);
    b->open = true;
    while (*sh->pos != '\0' && *sh->pos != quote) {
        if (quote == '"' && *sh->pos == '\\' && sh->pos[1] == '\n') {
            next(sh);
            next(sh);
        } else if (quote == '"' && *sh->pos == '\\' && sh->pos[1] != '\0' &&
                   strchr("\"\\$`", sh->pos[1]) != NULL) {
            next(sh);
            put(b, *sh->pos);
            next(sh);
        } else if (quote == '"' && *sh->pos == '$') {
            expand_dollar(sh, b, true);
        } else {
            put(b, *sh->pos);
            next(sh);
        }
    }
    if (*sh->pos == '\0')
        sh->open_quote_line = line;
    next(sh);
}

/* The length of an escaped line end at `s`, 0 when there is none. */
static size_t escaped_line_end(const char *s)
{
    if (s[0] == '\\' && s[1] == '\n')
        return 2;
    return s[0] == '\\' && s[1] == '\r' && s[2] == '\n' ? 3 : 0;
}

/* Read one lexical word; what it expands to goes to the builder's words. `stops` end it. */
static void read_word(shell_text_t *sh, builder_t *b, const char *stops)
{
    b->line = sh->line;
    while (*sh->pos != '\0' && strchr(stops, *sh->pos) == NULL) {
        size_t n_skipped = escaped_line_end(sh->pos);
        for (size_t i = 0; i < n_skipped; i++)
            next(sh);
        if (n_skipped > 0)
            continue;
        if (*sh->pos == '\\' && sh->pos[1] != '\0') {
            next(sh);
            put(b, *sh->pos);
            next(sh);
        } else if (*sh->pos == '\'' || *sh->pos == '"') {
            read_quoted(sh, b);
        } else if (*sh->pos == '`') {
            const char *end = strchr(sh->pos + 1, '`');
            size_t n = end != NULL ? (size_t)(end - sh->pos) + 1 : strlen(sh->pos);
            put_unknown(b, sh->pos, n);
            for (size_t i = 0; i < n; i++)
                next(sh);
        } else if (*sh->pos == '$') {
            expand_dollar(sh, b, false);
        } else {
            put(b, *sh->pos);
            next(sh);
        }
    }
    end_word(b);
}

static void skip_comment(shell_text_t *sh)
{
    size_t n = strcspn(sh->pos, "\n");
    if (sh->comment != NULL) {
        char *line = base_xasprintf("%.*s", (int)(n < 4096 ? n : 4096), sh->pos);
        sh->comment(line, sh->ctx);
        free(line);
    }
    sh->pos += n;
}

/* Blanks and escaped line ends; with `lines` also line ends and comments, as inside an array. */
static void skip_blanks(shell_text_t *sh, bool lines)
{
    for (;;) {
        size_t n = escaped_line_end(sh->pos);
        for (size_t i = 0; i < n; i++)
            next(sh);
        if (n > 0)
            continue;
        if (*sh->pos == ' ' || *sh->pos == '\t' || *sh->pos == '\r' || (*sh->pos == '\n' && lines))
            next(sh);
        else if (lines && *sh->pos == '#')
            skip_comment(sh);
        else
            return;
    }
}

static void read_array(shell_text_t *sh, shell_words_t *value)
{
    builder_t b = { .words = value };
    next(sh); /* the parenthesis */
    for (skip_blanks(sh, true); *sh->pos != '\0' && *sh->pos != ')'; skip_blanks(sh, true))
        read_word(sh, &b, " \t\r\n)");
    next(sh);
    free(b.text);
}

/* An unquoted value is not split at blanks in an assignment: join what expansion split. */
static void read_scalar(shell_text_t *sh, shell_words_t *value)
{
    shell_words_t parts = { 0 };
    builder_t b = { .words = &parts };
    read_word(sh, &b, " \t\r\n;&|)");
    b.n = 0;
    for (size_t i = 0; i < parts.n; i++) {
        if (i > 0)
            put(&b, ' ');
        put_text(&b, parts.text[i]);
    }
    push_word(value, b.n > 0 ? b.text : "", sh->line);
    free(b.text);
    shell_words_fini(&parts);
}

static void append_value(shell_variable_t *v, shell_words_t *value, bool array)
{
    if (array) {
        for (size_t i = 0; i < value->n; i++)
            push_word(&v->value, value->text[i], value->line[i]);
        v->n_has = 0;
    } else {
        size_t n = strlen(value->text[0]);
        if (v->value.n != 1 || v->n_has == 0) {
            char *first = base_xstrdup(v->value.n > 0 ? v->value.text[0] : "");
            shell_words_fini(&v->value);
            push_word(&v->value, first, value->line[0]);
            free(first);
            v->n_chars = strlen(v->value.text[0]);
            v->n_has = v->n_chars + 1;
        }
        if (v->n_chars + n + 1 > v->n_has) {
            v->n_has = 2 * (v->n_chars + n + 1);
            v->value.text[0] = base_xrealloc(v->value.text[0], v->n_has, 1);
        }
        memcpy(v->value.text[0] + v->n_chars, value->text[0], n + 1);
        v->n_chars += n;
        v->value.line[0] = value->line[0];
    }
}

/* NAME=..., NAME+=..., NAME=(...) at the current position. */
static bool read_assignment(shell_text_t *sh, bool run)
{
    size_t n = 0;
    while (is_name_char(sh->pos[n]))
        n++;
    if (n == 0 || n >= MAX_NAME || isdigit((unsigned char)sh->pos[0]))
        return false;
    bool more = sh->pos[n] == '+' && sh->pos[n + 1] == '=';
    if (!more && sh->pos[n] != '=')
        return false;
    char name[MAX_NAME];
    memcpy(name, sh->pos, n);
    name[n] = '\0';
    for (size_t i = 0; i < n + 1 + more; i++)
        next(sh);
    shell_words_t value = { 0 };
    bool array = *sh->pos == '(';
    if (array)
        read_array(sh, &value);
    else
        read_scalar(sh, &value);
    shell_variable_t *v = run ? get_variable(sh, name) : NULL;
    if (v != NULL && more) {
        append_value(v, &value, array);
    } else if (v != NULL) {
        shell_words_fini(&v->value);
        v->value = value;
        v->n_has = 0;
        return true;
    }
    shell_words_fini(&value);
    return true;
}

/* "<<EOF": skip to the line that is the delimiter. At the first '<'. */
static void skip_here_document(shell_text_t *sh)
{
    char delimiter[MAX_NAME];
    size_t n = 0;
    sh->pos += 2;
    sh->pos += strspn(sh->pos, "-'\" ");
    while (is_name_char(*sh->pos) && n < sizeof(delimiter) - 1)
        delimiter[n++] = *sh->pos++;
    delimiter[n] = '\0';
    while (*sh->pos != '\0') {
        while (*sh->pos != '\0' && *sh->pos != '\n')
            sh->pos++;
        next(sh);
        const char *s = sh->pos + strspn(sh->pos, "\t");
        if (n == 0 || (strncmp(s, delimiter, n) == 0 && !is_name_char(s[n])))
            break;
    }
    sh->pos += strcspn(sh->pos, "\n");
}

static void skip_redirection(shell_text_t *sh)
{
    shell_words_t dropped = { 0 };
    builder_t b = { .words = &dropped };
    if (sh->pos[0] == '<' && sh->pos[1] == '<' && sh->pos[2] != '<') {
        skip_here_document(sh);
        return;
    }
    sh->pos += strspn(sh->pos, "<>&");
    skip_blanks(sh, false);
    read_word(sh, &b, " \t\r\n;&|<>");
    shell_words_fini(&dropped);
    free(b.text);
}

/* Whether assignments may follow; the first *n_seen_p words are known to allow it. */
static bool takes_assignments(const shell_words_t *words, size_t *n_seen_p)
{
    static const char *const declare[] = { "export",   "declare", "local",
                                           "readonly", "typeset", "env" };
    for (size_t i = *n_seen_p; i < words->n; i++) {
        bool known = words->text[i][0] == '-' && i > 0;
        for (size_t d = 0; d < sizeof(declare) / sizeof(declare[0]); d++)
            known = known || strcmp(words->text[i], declare[d]) == 0;
        if (!known)
            return false;
        *n_seen_p = i + 1;
    }
    return true;
}

static bool statement_ends(shell_text_t *sh, shell_end_t *end_p)
{
    *end_p = SHELL_END_LINE;
    if (*sh->pos == '\0') {
        *end_p = SHELL_END_TEXT;
    } else if (strncmp(sh->pos, "&&", 2) == 0 || strncmp(sh->pos, "||", 2) == 0) {
        *end_p = sh->pos[0] == '&' ? SHELL_END_AND : SHELL_END_OR;
        next(sh);
        next(sh);
    } else if (strncmp(sh->pos, ";;", 2) == 0) {
        *end_p = SHELL_END_CASE;
        next(sh);
        next(sh);
    } else if (strchr("\n;|&()", *sh->pos) != NULL) {
        next(sh);
    } else {
        return false;
    }
    return true;
}

/* Words after which a new statement begins without a separator. */
static bool opens_statement(const shell_words_t *words)
{
    static const char *const openers[] = { "then", "else", "do", "{" };
    for (size_t i = 0; i < sizeof(openers) / sizeof(openers[0]); i++)
        if (words->n == 1 && strcmp(words->text[0], openers[i]) == 0)
            return true;
    return false;
}

shell_end_t shell_text_statement(shell_text_t *sh, bool run, shell_words_t *words)
{
    builder_t b = { .words = words };
    shell_end_t end;
    size_t n_seen = 0;
    for (;;) {
        skip_blanks(sh, false);
        if (*sh->pos == '#') {
            skip_comment(sh);
            continue;
        }
        if (statement_ends(sh, &end))
            break;
        if (takes_assignments(words, &n_seen) && read_assignment(sh, run))
            continue;
        size_t digits = strspn(sh->pos, "0123456789");
        if (sh->pos[digits] == '<' || sh->pos[digits] == '>' ||
            (sh->pos[0] == '&' && sh->pos[1] == '>')) {
            sh->pos += digits;
            skip_redirection(sh);
            continue;
        }
        read_word(sh, &b, " \t\r\n;&|()<>");
        if (opens_statement(words)) {
            end = SHELL_END_LINE;
            break;
        }
    }
    free(b.text);
    return end;
}
