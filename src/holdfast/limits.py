"""Every bound, with its reason. Settings may lower most of them; nothing is unbounded."""

KIB = 1024
MIB = 1024 * KIB

RECORD_BYTES_MAX = 1 * MIB  # one line; larger tool output lies beside the journal, bound by digest
BATCH_BYTES_MAX = 4 * MIB  # one write and sync; also the longest tail that a crash can tear
SEGMENT_BYTES = 256 * KIB  # what a reacquire re-hashes at most; chosen by measurement, see docs/benchmarks.md
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
QUEUED_INPUTS_MAX = 256  # waiting in one session; one more is refused as busy
PARKED_TURNS_MAX = 64
TOOL_OUTPUT_VIEW_BYTES = 32 * KIB  # what the model sees of one result; the rest is kept beside the journal
TOOL_OUTPUT_KEPT_BYTES = 16 * MIB  # what is kept at all
TOOL_TIMEOUT_SECONDS = 120.0
APPROVAL_EXPIRES_AFTER_SECONDS = 7 * 24 * 3600
LOCK_WAIT_SECONDS = 10.0  # then Busy, with who holds it
MODEL_FIRST_TOKEN_SECONDS = 120.0
MODEL_GAP_SECONDS = 60.0
MODEL_ANSWER_BYTES_MAX = 512 * KIB  # text, arguments and thinking of one answer; a stream that runs on is no answer
JOBS_PER_SESSION_MAX = 8  # running, or ended and not yet reported: each report is a turn of its own
JOBS_PER_HOME_MAX = 64  # each is at least three processes and a descriptor of whoever watches
JOBS_REMEMBERED = 256  # ended ones per session that a list shows; the journal has all
JOB_SECONDS = 3600.0  # how long a job may run where neither the call nor settings say
JOB_OUTPUT_BYTES_MAX = TOOL_OUTPUT_KEPT_BYTES  # of a running job, on disk; what comes after it is counted and dropped
