"""Every bound, with its reason. Settings may lower most of them; nothing is unbounded."""

KIB = 1024
MIB = 1024 * KIB

RECORD_BYTES_MAX = 1 * MIB  # one line; larger tool output lies beside the journal, bound by digest
BATCH_BYTES_MAX = 4 * MIB  # one write and sync; also the longest tail that a crash can tear
SEGMENT_BYTES = (
    256 * KIB
)  # what a reacquire re-hashes at most; chosen by measurement, see docs/benchmarks.md
JSON_DEPTH_MAX = 64  # deeper input is an attack on recursive readers, not a request
INTEGER_MAX = 2**53  # what every JSON reader agrees on; applies to whatever we digest
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
DELEGATE_DEPTH_MAX = 3  # agents below the one that was asked; deeper chains hide who asked for what
DELEGATES_PER_TURN_MAX = (
    8  # a turn that hands on more has no plan, and each costs a session and model calls of its own
)
DELEGATES_REMEMBERED = 256  # ended ones that a session still tells of; their own journals stay
TOOL_OUTPUT_VIEW_BYTES = (
    32 * KIB
)  # what the model sees of one result; the rest is kept beside the journal
TOOL_OUTPUT_KEPT_BYTES = 16 * MIB  # what is kept at all
TOOL_TIMEOUT_SECONDS = 120.0
APPROVAL_EXPIRES_AFTER_SECONDS = 7 * 24 * 3600
GRANT_EXPIRES_AFTER_SECONDS = 30 * 24 * 3600  # a person still knows what they allowed a month ago
CLOCK_DISPUTED_AFTER_SECONDS = (
    24 * 3600
)  # a journal that far ahead of the clock: no time zone, leap second or slow NTP explains it
CLOCK_AHEAD_MAX_SECONDS = (
    366 * 24 * 3600
    # a home may lie unused for months; a clock a year ahead of its journal is confirmed by a person
    # first
)
TIME_NOTED_EVERY_SECONDS = (
    24 * 3600
)  # a home in use notes the time at least so often: a clock that is set back revives at most a day
LOCK_WAIT_SECONDS = 10.0  # then Busy, with who holds it
# for writers of all its sessions together: commits take milliseconds, and a list must not hang on
# one that is stopped
LIST_WAIT_SECONDS = 1.0
MODEL_FIRST_TOKEN_SECONDS = 120.0
MODEL_GAP_SECONDS = 60.0
REMINDERS_PER_SESSION_MAX = (
    100  # standing at once: a person can read the list, and a row of the index stays small
)
REMINDER_TEXT_BYTES_MAX = 4 * KIB  # kept in the state and in the index for as long as it stands
REMINDER_EVERY_SECONDS_MIN = 60  # cron's own grain; anything faster is a loop, and wants a program
REMINDER_HORIZON_SECONDS = (
    5 * 366 * 24 * 3600
)  # a leap day is always within; what lies further away is a slip of the pen
REMINDER_LATE_SECONDS = 60  # from here on the input says that it comes late
REMINDER_MISSED_COUNTED_MAX = (
    100  # of each, while the write lock is held; beyond that a message says "100 or more"
)
MODEL_ANSWER_BYTES_MAX = (
    512 * KIB
)  # text, arguments and thinking of one answer; a stream that runs on is no answer
MEMORY_ITEM_BYTES_MAX = 4 * KIB  # a fact or a paragraph; longer things are files
MEMORY_ITEMS_PER_BOUNDARY_MAX = 200_000  # twice what recall is measured over; one more is refused
MEMORY_RECALLED_MAX = 8  # of one recall: what a model reads with care
MEMORY_RECALLED_BYTES_MAX = (
    8 * KIB
)  # of their texts together; a recall never crowds the request out
MEMORY_RECALL_SECONDS = 0.25  # a turn waits for its memory no longer than a person would notice
MEMORY_QUERY_WORDS_MAX = 16  # the longest words of a message; more cost time and find no better
MEMORY_RECALLS_SHOWN = 8  # turns whose recall `sessions show` still tells; the journal has all
JOBS_PER_SESSION_MAX = 8  # running, or ended and not yet reported: each report is a turn of its own
JOBS_PER_HOME_MAX = 64  # each is at least three processes and a descriptor of whoever watches
JOBS_REMEMBERED = 256  # ended ones per session that a list shows; the journal has all
JOB_SECONDS = 3600.0  # how long a job may run where neither the call nor settings say
JOB_OUTPUT_BYTES_MAX = (
    TOOL_OUTPUT_KEPT_BYTES  # of a running job, on disk; what comes after it is counted and dropped
)
