"""Every bound, with its reason. Settings may lower most of them; nothing is unbounded."""

KIB = 1024
MIB = 1024 * KIB

RECORD_BYTES_MAX = 1 * MIB  # one line; larger tool output lies beside the journal, bound by digest
BATCH_BYTES_MAX = 4 * MIB  # one write and sync; also the longest tail that a crash can tear
# The most that a reacquire re-hashes; chosen by measurement, see docs/internals/benchmarks.md.
SEGMENT_BYTES = 256 * KIB
JSON_DEPTH_MAX = 64  # deeper input is an attack on recursive readers, not a request
# The range that every JSON reader agrees on; applies to everything that is digested.
INTEGER_MAX = 2**53
INPUT_TEXT_BYTES_MAX = 256 * KIB  # a message; fits one record with room for its context and quotes
DEDUP_INPUTS = 4096  # remembered keys per session; older duplicates are new messages
# The arguments of a call: half a record, so that it fits the journal with room for the event's
# other fields.
ARGUMENTS_BYTES_MAX = 512 * KIB
DISPLAY_CHARS_MAX = 20_000  # a person can't judge more than this; longer plans are denied
FILE_DISPLAY_CHARS_MAX = (
    200_000
    # A file's text is read like a file: by scrolling. Its record holds it twice, as arguments and
    # as display, and stays below 1 MiB.
)
PROMPTS_PER_TURN_MAX = 20
MODEL_CALLS_PER_TURN_MAX = 50
TOOL_CALLS_PER_TURN_MAX = 200
CALLS_PER_BATCH_MAX = 64
CRASHES_IN_A_ROW_MAX = 3  # attempts that died with no finished step between them
# Tries of one model call where waiting does not help (an answer that can't be read), and in a home
# that does not wait, such as a test's.
MODEL_TRIES_MAX = 3
# Since the first failure of one model call. Most outages end within minutes; after that a person
# should know.
MODEL_RETRY_FOR_SECONDS = 15 * 60
# The longest back-off, so that a provider that is back is noticed within a minute. A provider's own
# Retry-After may be longer.
MODEL_RETRY_WAIT_SECONDS_MAX = 60.0
EQUAL_CALLS_IN_A_ROW = 3  # the third is corrected instead of run, a fourth ends the turn
# How long a turn waits for its external loop. A program that died is started again within a day.
LOOP_RETURNS_SECONDS = 24 * 3600
LOOP_ADAPTERS_MAX = 8  # that keep state in one turn: a framework, and the agents nested in it
# A framework's blob in the journal itself; a larger one lies beside it, bound by digest.
BLOB_INLINE_BYTES = 16 * KIB
QUOTES_MAX = 32
QUEUED_INPUTS_MAX = 256  # waiting in one session; one more is refused
PARKED_TURNS_MAX = 64
DELEGATE_DEPTH_MAX = 3  # agents below the one that was asked; deeper chains hide the requester
# A turn that delegates more has no plan, and each delegate costs a session and model calls.
DELEGATES_PER_TURN_MAX = 8
DELEGATES_REMEMBERED = 256  # ended ones that a session still lists; their own journals stay
# The part of one result that the model sees; the rest is kept beside the journal.
TOOL_OUTPUT_VIEW_BYTES = 32 * KIB
TOOL_OUTPUT_KEPT_BYTES = 16 * MIB  # the most that is kept at all
TOOL_TIMEOUT_SECONDS = 120.0
OUTPUT_BUFFER_BYTES_MAX = 1 * MIB  # of a server whose reader is away: some thousand log lines
APPROVAL_EXPIRES_AFTER_SECONDS = 7 * 24 * 3600
# A person still remembers the permission after a month.
GRANT_EXPIRES_AFTER_SECONDS = 30 * 24 * 3600
# A journal that far ahead of the clock: no time zone, leap second or slow NTP explains it.
CLOCK_DISPUTED_AFTER_SECONDS = 24 * 3600
CLOCK_AHEAD_MAX_SECONDS = (
    366 * 24 * 3600
    # A home may lie unused for months. If the clock is a year ahead of its journal, an operator
    # confirms it first.
)
# A used home notes the time at least this often, so a clock that is set back revives at most a day.
TIME_NOTED_EVERY_SECONDS = 24 * 3600
LOCK_WAIT_SECONDS = 10.0  # then Busy, with the holder
# For the writers of all listed sessions together: commits take milliseconds, and a list must not
# hang on a stopped one.
LIST_WAIT_SECONDS = 1.0
MODEL_FIRST_TOKEN_SECONDS = 120.0
MODEL_GAP_SECONDS = 60.0
# Active at once: a person can read the list, and a row of the index stays small.
REMINDERS_PER_SESSION_MAX = 100
REMINDER_TEXT_BYTES_MAX = 4 * KIB  # kept in the state and in the index while it is active
# cron's own resolution; anything faster is a loop, and needs a program.
REMINDER_EVERY_SECONDS_MIN = 60
# Always includes a leap day; a later date is a typing error.
REMINDER_HORIZON_SECONDS = 5 * 366 * 24 * 3600
REMINDER_LATE_SECONDS = 60  # from this delay on the input says that it comes late
# For each reminder, while the write lock is held; above it a message says "100 or more".
REMINDER_MISSED_COUNTED_MAX = 100
# Text, arguments and thinking of one answer; a longer stream is not an answer.
MODEL_ANSWER_BYTES_MAX = 512 * KIB
MEMORY_ITEM_BYTES_MAX = 4 * KIB  # a fact or a paragraph; longer things are files
# Twice the number that recall is measured with; one more is refused.
MEMORY_ITEMS_PER_BOUNDARY_MAX = 200_000
MEMORY_RECALLED_MAX = 8  # per recall: as many as a model reads with care
# Their texts together; a recall never crowds out the request.
MEMORY_RECALLED_BYTES_MAX = 8 * KIB
MEMORY_RECALL_SECONDS = 0.25  # a turn waits for its memory no longer than a person would notice
# The longest words of a message; more words cost time and find nothing better.
MEMORY_QUERY_WORDS_MAX = 16
MEMORY_RECALLS_SHOWN = 8  # turns whose recall `sessions show` still lists; the journal has all
JOBS_PER_SESSION_MAX = 8  # running, or ended and not yet reported: each report is a turn of its own
# Each is at least three processes, and a descriptor of the process that watches.
JOBS_PER_HOME_MAX = 64
JOBS_REMEMBERED = 256  # ended ones per session that a list shows; the journal has all
JOB_SECONDS = 3600.0  # how long a job may run if neither the call nor settings say
# The output of a running job on disk; later output is counted and dropped.
JOB_OUTPUT_BYTES_MAX = TOOL_OUTPUT_KEPT_BYTES
BLOB_BYTES_MAX = TOOL_OUTPUT_KEPT_BYTES  # one framework's state or result, beside the journal

RECORD_PAGE_BYTES = 64 * 1024
"""
The most that one reader of a journal is given at once, a single larger record aside. A client that
stalls holds no more.
"""
# One message of an MCP server: a page of tools, or a result with a picture in it. A reader that
# took any length would be filled by one line.
MCP_MESSAGE_BYTES_MAX = 4 * MIB
MCP_UNASKED_BYTES_MAX = 16 * MIB  # of progress and log messages within a minute without a reply
MCP_LIST_BYTES_MAX = 16 * MIB  # of all pages: each tool that can be offered, with much room
# One definition of a tool, with all texts that it brings to the model. A pin keeps it in one record
# of the home's journal, and a person reads all of it.
MCP_DEFINITION_BYTES_MAX = 64 * KIB
MCP_INSTRUCTIONS_BYTES_MAX = 16 * KIB  # for the same reasons
MCP_TOOLS_PER_SERVER_MAX = 256  # more than any model uses well; also bounds the pages of a list
MCP_LIST_SECONDS = 15.0  # a server that needs longer to name its tools is not usable
MCP_STARTS_PER_MINUTE_MAX = 5  # of one server; one that dies at once must not be started in a loop
MCP_CLIENT_MESSAGE_BYTES_MAX = 2 * MIB  # as every body of a request to the gateway
MCP_WAIT_SECONDS = 45.0  # of a client for a person's answer; known clients give up after 60
# For how long an equal call gets the result that no client has received. A client that lost a reply
# asks again within minutes; later the same words mean a new call.
MCP_RESULT_KEPT_SECONDS = 3600.0
MCP_OPEN_CALLS_MAX = 64  # of one client: prompts, and results that it did not take
# How often a server may ask for input in one call. Each round sends the call once more.
MCP_INPUT_ROUNDS_MAX = 3
# A question inside of an open call holds its session: other requests wait for the call's end.
MCP_OPEN_QUESTION_SECONDS = 900
# One round: requests, and fields in all of them. A person answers it in one line.
MCP_INPUT_REQUESTS_MAX = 4
MCP_INPUT_FIELDS_MAX = 16
# The server's own text that goes back with the answer. It stands in the prompt's record.
MCP_INPUT_STATE_BYTES_MAX = 64 * KIB
MCP_TASK_ID_CHARS_MAX = 256  # of a server's own id of a task, which is journalled
MCP_STDERR_BYTES_MAX = 256 * KIB  # of one server, for the person who looks for a fault
WORKERS_MAX = 64  # of one server; each has lines to all others and its own memory
