"""Every bound, with its reason. Settings may lower most of them; nothing is unbounded."""

KIB = 1024
MIB = 1024 * KIB

RECORD_BYTES_MAX = 1 * MIB  # one line; larger tool output lies beside the journal, bound by digest
BATCH_BYTES_MAX = 4 * MIB  # one write and sync; also the longest tail that a crash can tear
# The most that a reacquire re-hashes; chosen by measurement, see docs/benchmarks.md.
SEGMENT_BYTES = 256 * KIB
JSON_DEPTH_MAX = 64  # deeper input is an attack on recursive readers, not a request
# The range that every JSON reader agrees on; applies to everything that is digested.
INTEGER_MAX = 2**53
INPUT_TEXT_BYTES_MAX = 256 * KIB  # a message; fits one record with room for its context and quotes
DEDUP_INPUTS = 4096  # remembered keys per session; older duplicates are new messages
DISPLAY_CHARS_MAX = 20_000  # a person can't judge more than this; longer plans are denied
PROMPTS_PER_TURN_MAX = 20
MODEL_CALLS_PER_TURN_MAX = 50
TOOL_CALLS_PER_TURN_MAX = 200
CALLS_PER_BATCH_MAX = 64
CRASHES_IN_A_ROW_MAX = 3  # attempts that died with no finished step between them
MODEL_RETRIES_MAX = 3  # of one model call, for failures that may pass
EQUAL_CALLS_IN_A_ROW = 3  # the third is corrected instead of run, a fourth ends the turn
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
