/* SPDX-License-Identifier: Apache-2.0
 * A training script read as text. Nothing is run: assignments are followed, conditions on known
 * values are decided, and the arguments are those of the command that has the most of them. */
#include "config.h"

#include "sim/base/glob.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/import.h"
#include "sim/scenario/import_titan.h"
#include "sim/scenario/shell_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 64, MAX_REREAD = 3, MAX_COMPARED = 1024 };

typedef enum { BLOCK_IF, BLOCK_LOOP, BLOCK_CASE } block_kind_t;

typedef struct {
    block_kind_t kind;
    bool active;   /* statements of the current branch count */
    bool taken;    /* a branch of this block has counted */
    char *subject; /* of a case */
} block_t;

typedef struct {
    sim_import_t *import;
    const char *name;
    shell_text_t *sh;
    int depth;
    block_t blocks[MAX_BLOCKS];
    size_t n_blocks;
    shell_words_t best;     /* the arguments found so far, after the script's name */
    shell_words_t launcher; /* what stood before it */
    size_t best_score;
    shell_words_t loose; /* statements that begin with "--": arguments without a command */
    uint64_t sbatch_nodes, sbatch_per_node, sbatch_tasks;
} script_t;

static void read_script(script_t *script, const char *text);

static bool is_unknown(const char *word)
{
    return strchr(word, SHELL_UNKNOWN) != NULL;
}

static bool active(const script_t *script)
{
    for (size_t i = 0; i < script->n_blocks; i++)
        if (!script->blocks[i].active)
            return false;
    return true;
}

/* An unset variable compares as empty; a command substitution and a long text cannot be known. */
static const char *operand_text(const char *word, bool *known_p)
{
    if (strnlen(word, MAX_COMPARED) == MAX_COMPARED) {
        *known_p = false;
        return "";
    }
    if (!is_unknown(word))
        return word;
    if (word[0] != SHELL_UNKNOWN || word[1] != '$' || word[2] == '(')
        *known_p = false;
    return "";
}

static bool compare(const char *a, const char *op, const char *b, bool *known_p)
{
    long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    if (strcmp(op, "=") == 0 || strcmp(op, "==") == 0)
        return base_glob_match(b, a);
    if (strcmp(op, "!=") == 0)
        return !base_glob_match(b, a);
    if (strcmp(op, "-eq") == 0)
        return x == y;
    if (strcmp(op, "-ne") == 0)
        return x != y;
    if (strcmp(op, "-gt") == 0)
        return x > y;
    if (strcmp(op, "-ge") == 0)
        return x >= y;
    if (strcmp(op, "-lt") == 0)
        return x < y;
    if (strcmp(op, "-le") == 0)
        return x <= y;
    *known_p = false;
    return false;
}

/* Words of "[ ... ]", "[[ ... ]]" or "test ...". An undecidable one counts as false. */
static bool decide(script_t *script, const shell_words_t *words, size_t first)
{
    size_t n = words->n - first, i = first + 1;
    bool known = true, result = false, negate = false;
    if (n > 1 && (strcmp(words->text[words->n - 1], "]") == 0 ||
                  strcmp(words->text[words->n - 1], "]]") == 0))
        n--;
    if (n > 1 && strcmp(words->text[i], "!") == 0) {
        negate = true;
        i++;
        n--;
    }
    if (n == 3 && strcmp(words->text[i], "-z") == 0)
        result = *operand_text(words->text[i + 1], &known) == '\0';
    else if (n == 3 && strcmp(words->text[i], "-n") == 0)
        result = *operand_text(words->text[i + 1], &known) != '\0';
    else if (n == 4)
        result = compare(operand_text(words->text[i], &known), words->text[i + 1],
                         operand_text(words->text[i + 2], &known), &known);
    else
        known = false;
    if (!known)
        base_diag_add(
            &script->import->warnings,
            "%s:%lu: this condition is not known without running the script; taken as false",
            script->name, words->line[first]);
    return known ? result != negate : false;
}

static bool is_condition(const char *word)
{
    return strcmp(word, "[") == 0 || strcmp(word, "[[") == 0 || strcmp(word, "test") == 0;
}

/* How many words are settings of Megatron-Bridge. */
static size_t count_overrides(const shell_words_t *words)
{
    size_t n = 0;
    for (size_t i = 0; i < words->n; i++)
        n += sim_import_is_override(words->text[i]);
    return n;
}

/* How many words are options of torchtitan. */
static size_t count_titan(const shell_words_t *words)
{
    size_t n = 0;
    for (size_t i = 0; i < words->n; i++)
        n += sim_import_is_titan_option(words->text[i]);
    return n;
}

/* How many words are options that Megatron-LM or torchtitan knows, or settings of Megatron-Bridge.
 */
static size_t score(const shell_words_t *words, size_t first)
{
    size_t n = 0;
    for (size_t i = first; i < words->n; i++) {
        n += sim_import_is_override(words->text[i]) || sim_import_is_titan_option(words->text[i]);
        char name[SIM_ARG_NAME];
        sim_arg_t arg;
        if (strncmp(words->text[i], "--", 2) != 0)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(words->text[i] + 2, "="),
                 words->text[i] + 2);
        n += sim_megatron_arg_find(name, &arg);
    }
    return n;
}

static void copy_words(shell_words_t *to, const shell_words_t *from, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        to->text = base_xgrow(to->text, to->n, sizeof(*to->text));
        to->line = base_xgrow(to->line, to->n, sizeof(*to->line));
        to->text[to->n] = base_xstrdup(from->text[i]);
        to->line[to->n++] = from->line[i];
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* "python -m torchtitan.train", "./run_train.sh" */
static bool is_titan_program(const char *word)
{
    return strcmp(word, "torchtitan.train") == 0 || ends_with(word, "run_train.sh");
}

static bool begins_arguments(const char *word)
{
    return strncmp(word, "--", 2) == 0 || sim_import_is_override(word);
}

/* A command: a training script with its arguments, a loose list of arguments, or a shell that is
 * given the command as one word. */
static void consider(script_t *script, const shell_words_t *words)
{
    for (size_t i = 0; i < words->n; i++) {
        if (strpbrk(words->text[i], " \n") != NULL && strstr(words->text[i], ".py") != NULL) {
            if (script->depth < MAX_REREAD)
                read_script(script, words->text[i]);
        } else if (ends_with(words->text[i], ".py") || is_titan_program(words->text[i])) {
            size_t points = score(words, i + 1);
            if (points > script->best_score) {
                shell_words_fini(&script->best);
                shell_words_fini(&script->launcher);
                copy_words(&script->best, words, i + 1, words->n);
                copy_words(&script->launcher, words, 0, i);
                script->best_score = points;
            }
            return;
        }
    }
    if (words->n > 0 && begins_arguments(words->text[0]))
        copy_words(&script->loose, words, 0, words->n);
}

static void push_block(script_t *script, block_kind_t kind, bool is_active)
{
    if (script->n_blocks < MAX_BLOCKS)
        script->blocks[script->n_blocks++] = (block_t){ kind, is_active, is_active, NULL };
}

static void pop_block(script_t *script)
{
    if (script->n_blocks > 0)
        free(script->blocks[--script->n_blocks].subject);
}

static block_t *top_block(script_t *script)
{
    return script->n_blocks > 0 ? &script->blocks[script->n_blocks - 1] : NULL;
}

static void drop_first(shell_words_t *words, size_t n)
{
    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        free(words->text[i]);
    memmove(words->text, words->text + n, (words->n - n) * sizeof(*words->text));
    memmove(words->line, words->line + n, (words->n - n) * sizeof(*words->line));
    words->n -= n;
}

/* "if" and "elif" are followed by their condition in the same statement. */
static void open_branch(script_t *script, const shell_words_t *words, size_t first, bool is_elif)
{
    block_t *block;
    bool result = false;
    if (!is_elif)
        push_block(script, BLOCK_IF, false);
    block = top_block(script);
    if (block == NULL)
        return;
    block->active = false;
    if (!block->taken) {
        size_t depth = script->n_blocks - 1;
        bool outer = true;
        for (size_t i = 0; i < depth; i++)
            outer = outer && script->blocks[i].active;
        if (outer && words->n > first + 1 && is_condition(words->text[first + 1]))
            result = decide(script, words, first + 1);
        block->active = result;
        block->taken = result;
    }
}

static void case_label(script_t *script, const shell_words_t *words)
{
    block_t *block = top_block(script);
    const char *label = words->text[words->n - 1];
    block->active = !block->taken && !is_unknown(label) && base_glob_match(label, block->subject);
    block->taken = block->taken || block->active;
}

/* Words that steer; returns true when the statement is used up, else they are taken off. */
static bool keyword(script_t *script, shell_words_t *words)
{
    size_t first = 0;
    for (; first < words->n; first++) {
        const char *w = words->text[first];
        const char *const *rest = (const char *const *)&words->text[first];
        size_t n = words->n - first;
        block_t *block = top_block(script);
        if (strcmp(w, "if") == 0 || strcmp(w, "elif") == 0) {
            open_branch(script, words, first, w[0] == 'e');
            return true;
        }
        if (strcmp(w, "else") == 0 && block != NULL) {
            block->active = !block->taken;
            block->taken = true;
        } else if (strcmp(w, "fi") == 0 || strcmp(w, "done") == 0 || strcmp(w, "esac") == 0) {
            pop_block(script);
        } else if (strcmp(w, "for") == 0 || strcmp(w, "while") == 0 || strcmp(w, "until") == 0) {
            push_block(script, BLOCK_LOOP, true);
            if (w[0] == 'f' && n > 3 && active(script))
                shell_text_assign(script->sh, rest[1], rest[3]);
            return true;
        } else if (strcmp(w, "case") == 0 && n > 1) {
            bool known = true;
            const char *subject = operand_text(rest[1], &known);
            push_block(script, BLOCK_CASE, false);
            block = top_block(script);
            if (block != NULL && block->kind == BLOCK_CASE && block->subject == NULL)
                block->subject = base_xstrdup(subject);
            return true;
        } else if (strcmp(w, "then") != 0 && strcmp(w, "do") != 0 && strcmp(w, "{") != 0 &&
                   strcmp(w, "}") != 0 && strcmp(w, "exec") != 0 && strcmp(w, "eval") != 0 &&
                   strcmp(w, "time") != 0) {
            break;
        }
    }
    bool used_up = first == words->n;
    drop_first(words, first);
    return used_up;
}

static void read_statements(script_t *script)
{
    shell_end_t end;
    bool skip = false;
    do {
        shell_words_t words = { 0 };
        bool run = active(script) && !skip;
        const char *start = script->sh->pos;
        end = shell_text_statement(script->sh, run, &words);
        block_t *block = top_block(script);
        bool label = block != NULL && block->kind == BLOCK_CASE && words.n > 0 &&
                     script->sh->pos > start && script->sh->pos[-1] == ')';
        bool result = true, tested = false;
        if (label) {
            case_label(script, &words);
        } else if (!keyword(script, &words) && run && words.n > 0) {
            tested = is_condition(words.text[0]) && words.n > 1;
            if (tested)
                result = decide(script, &words, 0);
            else
                consider(script, &words);
        }
        if (end == SHELL_END_CASE && block != NULL && block->kind == BLOCK_CASE)
            block->active = false;
        skip = (skip && (end == SHELL_END_AND || end == SHELL_END_OR)) ||
               (tested && ((end == SHELL_END_AND && !result) || (end == SHELL_END_OR && result)));
        shell_words_fini(&words);
    } while (end != SHELL_END_TEXT);
}

/* A command that was given as one word is read with the variables known so far. */
static void read_script(script_t *script, const char *text)
{
    shell_text_t *outer = script->sh, inner = *outer;
    inner.pos = text;
    script->sh = &inner;
    script->depth++;
    read_statements(script);
    script->depth--;
    script->sh = outer;
    outer->variables = inner.variables;
    outer->n_variables = inner.n_variables;
    outer->n_bytes = inner.n_bytes;
    outer->open_quote_line = inner.open_quote_line;
    outer->has_too_many = inner.has_too_many;
}

static bool option_number(const char *text, const char *option, uint64_t *n_p)
{
    size_t n = strlen(option);
    if (strncmp(text, option, n) != 0 || (text[n] != '=' && text[n] != ' '))
        return false;
    char digits[24];
    const char *value = text + n + 1;
    snprintf(digits, sizeof(digits), "%.*s", (int)strspn(value, "0123456789"), value);
    return base_u64_parse(digits, n_p);
}

/* "#SBATCH --nodes=4 --gpus-per-node=8": what Slurm will start. */
static void read_comment(const char *line, void *ctx)
{
    script_t *script = ctx;
    if (strncmp(line, "#SBATCH", 7) != 0)
        return;
    for (const char *s = strchr(line, '-'); s != NULL;
         s = strstr(s, " -") ? strstr(s, " -") + 1 : NULL) {
        if (option_number(s, "--nodes", &script->sbatch_nodes) ||
            option_number(s, "-N", &script->sbatch_nodes)) {
            char text[24];
            snprintf(text, sizeof(text), "%" PRIu64, script->sbatch_nodes);
            shell_text_assign(script->sh, "SLURM_NNODES", text);
            shell_text_assign(script->sh, "SLURM_JOB_NUM_NODES", text);
        }
        if (!option_number(s, "--gpus-per-node", &script->sbatch_per_node) &&
            !option_number(s, "--gres=gpu:", &script->sbatch_per_node))
            option_number(s, "--ntasks-per-node", &script->sbatch_tasks);
    }
}

/* The value of the first of `names` (blank-separated) among the launcher's words, 0 when absent. */
static uint64_t launcher_number(const shell_words_t *words, const char *names)
{
    for (size_t i = 0; i < words->n; i++) {
        const char *w = words->text[i], *equals = strchr(w, '=');
        char name[64], padded[72];
        uint64_t n;
        snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - w) : (int)strlen(w), w);
        for (char *s = name; *s != '\0'; s++)
            if (*s == '_')
                *s = '-';
        snprintf(padded, sizeof(padded), " %s ", name);
        if (strstr(names, padded) == NULL)
            continue;
        const char *value = equals != NULL     ? equals + 1
                            : i + 1 < words->n ? words->text[i + 1]
                                               : "";
        const char *colon = strchr(value, ':'); /* torchrun's MIN:MAX nodes */
        if (base_u64_parse(colon != NULL ? colon + 1 : value, &n))
            return n;
    }
    return 0;
}

static void find_world_size(script_t *script)
{
    const shell_words_t *l = &script->launcher;
    uint64_t per_node = launcher_number(l, " --nproc-per-node ");
    uint64_t nodes = launcher_number(l, " --nnodes ");
    uint64_t tasks = launcher_number(l, " -np -n --ntasks ");
    uint64_t world = 0;
    const char *text = shell_text_value(script->sh, "WORLD_SIZE");
    const char *from = "the launcher's arguments";
    if (per_node > 0) {
        if (nodes == 0)
            nodes = script->sbatch_nodes > 0 ? script->sbatch_nodes : 1;
        if (!base_u64_mul(per_node, nodes, &world))
            world = 0;
    } else if (tasks > 0) {
        world = tasks;
    } else if (text != NULL && base_u64_parse(text, &world)) {
        from = "variable WORLD_SIZE";
    } else if (script->sbatch_nodes > 0) {
        per_node = script->sbatch_per_node > 0 ? script->sbatch_per_node : script->sbatch_tasks;
        from = "#SBATCH lines";
        if (per_node == 0 || !base_u64_mul(per_node, script->sbatch_nodes, &world))
            world = 0;
    }
    if (world > 0)
        sim_import_set_world_size(script->import, world, from);
}

static void export_environment(script_t *script)
{
    static const char *const prefixes[] = { "PYTORCH_", "NVTE_", "NCCL_",
                                            "CUBLAS_",  "CUDA_", "TORCH_" };
    for (size_t i = 0; i < script->sh->n_variables; i++) {
        const shell_variable_t *v = &script->sh->variables[i];
        for (size_t p = 0; p < sizeof(prefixes) / sizeof(prefixes[0]); p++)
            if (strncmp(v->name, prefixes[p], strlen(prefixes[p])) == 0 && v->value.n > 0)
                sim_import_set_env(script->import, v->name, v->value.text[0]);
    }
}

/* Variables whose text is a list of arguments, for texts without a command. */
static void collect_variables(script_t *script)
{
    for (size_t i = 0; i < script->sh->n_variables; i++) {
        const shell_words_t *value = &script->sh->variables[i].value;
        if (value->n == 0)
            continue;
        shell_words_t words = { 0 };
        if (value->n == 1) {
            shell_text_t inner;
            shell_text_init(&inner, value->text[0]);
            inner.line = value->line[0];
            while (shell_text_statement(&inner, false, &words) != SHELL_END_TEXT)
                ;
            shell_text_fini(&inner);
        } else {
            copy_words(&words, value, 0, value->n);
        }
        if (words.n > 0 && begins_arguments(words.text[0]) && score(&words, 0) > 0)
            copy_words(&script->loose, &words, 0, words.n);
        shell_words_fini(&words);
    }
}

static void add_arguments(script_t *script, const shell_words_t *words)
{
    char **origins = base_xcalloc(words->n, sizeof(*origins));
    for (size_t i = 0; i < words->n; i++)
        origins[i] = base_xasprintf("%s:%lu", script->name, words->line[i]);
    sim_import_add_words(script->import, words->text, origins, words->n);
    for (size_t i = 0; i < words->n; i++)
        free(origins[i]);
    free(origins);
}

/* Words of a Megatron-Bridge script: its settings, and the options that say more about them. */
static void add_overrides(script_t *script, const shell_words_t *words)
{
    sim_import_t *import = script->import;
    for (size_t i = 0; i < words->n; i++) {
        const char *w = words->text[i], *equals = strchr(w, '=');
        const char *value = equals != NULL     ? equals + 1
                            : i + 1 < words->n ? words->text[i + 1]
                                               : "";
        char *origin = base_xasprintf("%s:%lu", script->name, words->line[i]);
        uint64_t n;
        if (sim_import_is_override(w)) {
            sim_import_add_override(import, w, origin);
        } else if (strncmp(w, "--recipe", 8) == 0 && (w[8] == '\0' || w[8] == '=')) {
            free(import->recipe);
            import->recipe = base_xstrdup(value);
        } else if (strncmp(w, "--num_gpus", 10) == 0 && base_u64_parse(value, &n) && n > 0) {
            sim_import_set_world_size(import, n, origin);
        } else if (strncmp(w, "--config-file", 13) == 0) {
            base_diag_add(&import->warnings,
                          "%s: --config-file %s is not read; import it by itself", origin, value);
        } else if (*w == '-') {
            base_diag_add(&import->ignored, "%s: %s: not a setting of Megatron-Bridge", origin, w);
        }
        free(origin);
    }
    const char *precision = shell_text_value(script->sh, "mixed_precision");
    if (precision != NULL)
        sim_import_add_field(import, "mixed_precision", precision, script->name);
}

static void add_titan(script_t *script, const shell_words_t *words)
{
    char **origins = base_xcalloc(words->n, sizeof(*origins));
    for (size_t i = 0; i < words->n; i++)
        origins[i] = base_xasprintf("%s:%lu", script->name, words->line[i]);
    sim_import_add_titan_words(script->import, words->text, origins, words->n);
    for (size_t i = 0; i < words->n; i++)
        free(origins[i]);
    free(origins);
}

static base_status_t add_words(script_t *script, const shell_words_t *words, base_err_t *err)
{
    sim_import_t *import = script->import;
    size_t all = score(words, 0), overrides = count_overrides(words);
    size_t titan = count_titan(words);
    if (titan > 0 && (import->format == SIM_IMPORT_TITAN ||
                      (import->format == SIM_IMPORT_AUTO && 2 * titan > all))) {
        import->format = SIM_IMPORT_TITAN;
        add_titan(script, words);
        return BASE_OK;
    }
    if (import->format == SIM_IMPORT_AUTO)
        import->format = 2 * overrides > all ? SIM_IMPORT_BRIDGE : SIM_IMPORT_ARGUMENTS;
    if (import->format == SIM_IMPORT_BRIDGE && overrides > 0) {
        add_overrides(script, words);
        return BASE_OK;
    }
    if (import->format == SIM_IMPORT_ARGUMENTS && all > overrides) {
        add_arguments(script, words);
        return BASE_OK;
    }
    return base_err_set(err, BASE_ERR_PARSE,
                        "%s: no Megatron-LM arguments found: neither a command such as \"torchrun "
                        "pretrain_gpt.py --num-layers 32 ...\", nor Megatron-Bridge settings such "
                        "as \"model.num_layers=32\", nor torchtitan's options, nor a printed "
                        "argument dump, nor MODEL_ARGS "
                        "in YAML",
                        script->name);
}

base_status_t sim_import_shell(sim_import_t *import, const char *name, const char *text,
                               base_err_t *err)
{
    shell_text_t sh;
    script_t script = { .import = import, .name = name, .sh = &sh };
    shell_text_init(&sh, text);
    sh.comment = read_comment;
    sh.ctx = &script;
    read_statements(&script);
    while (script.n_blocks > 0)
        pop_block(&script);
    if (sh.has_too_many)
        base_diag_add(&import->errors, "%s: more than %d variables", name, SHELL_MAX_VARIABLES);
    if (script.best_score == 0)
        collect_variables(&script);
    find_world_size(&script);
    export_environment(&script);
    base_status_t status;
    if (sh.open_quote_line > 0)
        status =
            base_err_set(err, BASE_ERR_PARSE, "%s:%lu: nothing closes the quote that opens here",
                         name, sh.open_quote_line);
    else
        status = add_words(&script, script.best_score > 0 ? &script.best : &script.loose, err);
    shell_words_fini(&script.best);
    shell_words_fini(&script.launcher);
    shell_words_fini(&script.loose);
    shell_text_fini(&sh);
    return status;
}
