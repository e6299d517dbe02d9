/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/topics.h"

static const char scenario_text[] =
    "A scenario is an INI file; keys carry the names of Megatron-LM and\n"
    "Megatron-Bridge, spelled with underscores. Sections only group.\n\n"
    "  [model]\n"
    "  preset = llama3-8b\n"
    "  [parallel]\n"
    "  world_size = 8\n"
    "  tensor_model_parallel_size = 2\n"
    "  [train]\n"
    "  micro_batch_size = 1\n"
    "  global_batch_size = 32\n"
    "  seq_length = 8192\n"
    "  [precision]\n"
    "  bf16 = true\n"
    "  [device]\n"
    "  gpu = h100-80gb-sxm\n\n"
    "mbsim keys lists every key with its default, mbsim keys KEY explains one,\n"
    "mbsim models and mbsim gpus list the names that preset and gpu know.\n"
    "--set SECTION.KEY=VALUE wins over the file. mbsim import makes a scenario\n"
    "from a shell script, a printed argument dump, Megatron-Bridge's settings or\n"
    "a config.json of Hugging Face. What Megatron-LM refuses, and what is not\n"
    "simulated, is an error that says what would be right.\n";

static const char allocator_text[] =
    "Every tensor goes through a model of PyTorch's caching allocator, which gives\n"
    "the same blocks and figures as PyTorch does for the same calls:\n\n"
    "  - sizes are rounded up to 512 bytes;\n"
    "  - up to 1 MiB: from segments of 2 MiB; from 1 to 10 MiB: from segments of\n"
    "    20 MiB; above: from a segment of its own, in steps of 2 MiB;\n"
    "  - the best fitting free block of the pool and stream is used, and split;\n"
    "  - what is freed is kept (cached) and merged with free neighbours.\n\n"
    "allocated is what tensors hold, reserved is what the segments hold; the device\n"
    "runs out when reserved can grow no more, even after the cache was given back.\n"
    "The settings of PYTORCH_CUDA_ALLOC_CONF are the key allocator.conf:\n\n"
    "  mbsim job.ini --set allocator.conf=expandable_segments:True\n\n"
    "mbsim replay plays a recorded sequence, or a memory snapshot of PyTorch, under\n"
    "other settings.\n";

static const char fragmentation_text[] =
    "Reserved memory is more than what tensors hold: free blocks lie between live\n"
    "ones and are too small for the next request. When a rank runs out of memory it\n"
    "is played once more on a device without end, and the report says which it is:\n\n"
    "  capacity        the tensors alone are more than there is; no setting of the\n"
    "                  allocator helps. See mbsim advise.\n"
    "  fragmentation   the tensors would fit, what has to be reserved for them does\n"
    "                  not. The report says whether expandable_segments:True fits.\n\n"
    "The page of --html draws reserved less allocated over time; it is largest\n"
    "between iterations, when activations are gone and their blocks are kept, and\n"
    "that does no harm. What counts is how much is left at the peak: `cached` in\n"
    "the ledger. A rank that went on only after the allocator gave its cache back\n"
    "is named too: each such retry stalls the GPU.\n";

static const char accuracy_text[] =
    "Allocated bytes follow from the sequence of allocations and frees that\n"
    "Megatron-LM makes, and are compared with measured runs:\n\n"
    "  mbsim validate tests/data/measured-peaks.jsonl\n\n"
    "or with your own, one JSON object a line; --max-median and --max-p90 turn a\n"
    "larger error into exit code 4.\n"
    "Reserved bytes may differ from a real run where the allocator breaks ties by\n"
    "address, as no driver gives the addresses. What lies outside PyTorch (context,\n"
    "code, communicators) is an estimate with bounds; -v shows it line by line, and\n"
    "device.reserved_outside_bytes puts a measured figure in its place.\n"
    "Times (step, throughput, bubble) are estimates from a roofline of the GPU and\n"
    "the links: good enough to put layouts in order, no more.\n";

static const char files_text[] =
    "  --json FILE      everything, for programs (\"schema\": \"mbsim.report/1\")\n"
    "  --csv FILE       one line a rank, all sizes in bytes\n"
    "  --html FILE      one page for a browser that needs no network\n"
    "  --perfetto FILE  a trace for ui.perfetto.dev or chrome://tracing\n"
    "  --snapshot DIR   a memory snapshot a rank, as PyTorch writes them\n\n"
    "- is standard output, which then gets no other text. A file is there completely\n"
    "or not at all: an old one stays as it was when writing fails. Results go to\n"
    "standard output and files, messages to standard error.\n";

static const char exit_codes_text[] =
    "  0   done; every rank fits\n"
    "  1   failed while running\n"
    "  2   wrong usage, or a wrong scenario or input\n"
    "  3   at least one rank is predicted to run out of memory\n"
    "  4   a threshold given to validate was missed\n\n"
    "Under mpirun every process ends with the code of process 0.\n";

static const char terminal_text[] =
    "On a terminal the report has colours (not with NO_COLOR set, nor with\n"
    "TERM=dumb) and, where there is room, a bar a rank that shows how full its device\n"
    "is. Long work shows a line on standard error: how much is done, how fast, for\n"
    "how long still. --progress always shows it in a file too, never not at all;\n"
    "--quiet leaves out progress and warnings. In a pipe or a file the report is\n"
    "plain text of at most 100 columns.\n";

static const sim_topic_t topics[] = {
    { "scenario", "what a scenario file looks like", scenario_text },
    { "allocator", "how PyTorch's caching allocator is modelled", allocator_text },
    { "fragmentation", "capacity or fragmentation, and how to tell", fragmentation_text },
    { "accuracy", "how far to trust which figure", accuracy_text },
    { "files", "what can be written, and in which form", files_text },
    { "exit-codes", "what the exit code says", exit_codes_text },
    { "terminal", "colour, bars, progress", terminal_text },
};

const sim_topic_t *sim_topics(size_t *n_p)
{
    *n_p = sizeof(topics) / sizeof(topics[0]);
    return topics;
}
