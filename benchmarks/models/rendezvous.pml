/* The small rendezvous (property_tests/support/systems/small_rendezvous.py) with N nodes.
   Every step is one d_step that ends where it began, so that the states stored are exactly the model's. */

#define MIN 2
#if N == 2
#define MAX 2
#define SUM(f) (f(0) + f(1))
#define EACH(f) f(0); f(1)
#elif N == 3
#define MAX 2
#define SUM(f) (f(0) + f(1) + f(2))
#define EACH(f) f(0); f(1); f(2)
#elif N == 4
#define MAX 3
#define SUM(f) (f(0) + f(1) + f(2) + f(3))
#define EACH(f) f(0); f(1); f(2); f(3)
#endif

#define OUT  0
#define JOIN 1
#define RUN  2
#define DEAD 3

#define NONE    0
#define FRESH   1
#define DUE     2
#define EXPIRED 3

#define UNSET   0
#define RUNNING 1
#define PASSED  2

bool complete, closed;
byte deadline, round;
byte place[N], heartbeat[N];
bool participant[N], waiting[N], current[N];
hidden byte lost, many;

/* The copy that a node decides on: what the shared state is once expired nodes are dropped. */
#define LISTED(j)     (participant[j] && heartbeat[j] != EXPIRED)
#define LOST(j)       (participant[j] && heartbeat[j] == EXPIRED)
#define EMPTIED       (SUM(LOST) && !SUM(LISTED))
#define SANE_COMPLETE (complete && !EMPTIED)
#define SANE_WAITING  (waiting[_pid] && heartbeat[_pid] != EXPIRED)
#define SANE_PASSED   (deadline == PASSED && !(SUM(LOST) && !complete && SUM(LISTED) < MIN))
#define JOINS         (place[_pid] == JOIN && current[_pid] && !closed && !(SANE_COMPLETE && LISTED(_pid)))

#define PARTICIPANT(j) participant[j]
#define BEATS(j)       (!(participant[j] && waiting[j]) && (heartbeat[j] != NONE || !(participant[j] || waiting[j])))
#define CHECK          assert(SUM(PARTICIPANT) <= MAX && (!complete || SUM(PARTICIPANT)) && SUM(BEATS) == N)

#define DROP(j)  if :: heartbeat[j] == EXPIRED -> participant[j] = 0; waiting[j] = 0; heartbeat[j] = NONE :: else fi
#define STALE(j) current[j] = 0

inline end_round() {
    many = SUM(PARTICIPANT);
    if
    :: complete && !many -> round = (round + 1) % 4; complete = 0
    :: !complete && many < MIN -> deadline = UNSET
    :: else
    fi
}

inline sanitise() {
    lost = SUM(LOST);
    EACH(DROP);
    if :: lost -> end_round() :: else fi
}

inline remove() {
    sanitise();
    participant[_pid] = 0; waiting[_pid] = 0; heartbeat[_pid] = NONE;
    end_round()
}

inline write() { EACH(STALE); current[_pid] = 1 }
inline write_and_die() { EACH(STALE); place[_pid] = DEAD }

active [N] proctype node() {
end:
    do
    :: d_step { heartbeat[_pid] == FRESH || heartbeat[_pid] == DUE -> heartbeat[_pid] = heartbeat[_pid] + 1 }
    :: d_step { place[_pid] != DEAD -> place[_pid] = DEAD; current[_pid] = 0 }
    :: d_step { place[_pid] == RUN -> place[_pid] = OUT }
    :: d_step { place[_pid] != DEAD && !current[_pid] -> current[_pid] = 1 }
    :: d_step { place[_pid] == OUT && current[_pid] && LISTED(_pid) -> remove(); write(); CHECK }
    :: d_step { place[_pid] == OUT && current[_pid] && !LISTED(_pid) -> place[_pid] = JOIN }
    :: d_step { place[_pid] == JOIN && current[_pid] && closed -> place[_pid] = DEAD; current[_pid] = 0 }
    :: d_step { place[_pid] == JOIN && current[_pid] && !closed && SANE_COMPLETE && LISTED(_pid) -> place[_pid] = RUN }
    :: d_step { JOINS && LISTED(_pid) -> remove(); write_and_die(); CHECK }
    :: d_step { JOINS && !LISTED(_pid) && SANE_WAITING ->
                sanitise(); waiting[_pid] = 0; heartbeat[_pid] = NONE; write_and_die(); CHECK }
    :: d_step { JOINS && SANE_COMPLETE && SUM(LISTED) < MAX && !SANE_WAITING ->
                sanitise(); waiting[_pid] = 1; heartbeat[_pid] = FRESH; write(); CHECK }
    :: d_step { JOINS && !SANE_COMPLETE && LISTED(_pid) && SUM(LISTED) >= MIN && SANE_PASSED ->
                sanitise(); complete = 1; deadline = UNSET; write(); CHECK }
    :: d_step { JOINS && !SANE_COMPLETE && !LISTED(_pid) ->
                sanitise();
                waiting[_pid] = 0; participant[_pid] = 1; heartbeat[_pid] = FRESH;
                many = SUM(PARTICIPANT);
                if
                :: many == MAX -> deadline = UNSET; complete = 1
                :: many != MAX && many == MIN -> deadline = RUNNING
                :: else
                fi;
                write(); CHECK }
    :: d_step { current[_pid] && heartbeat[_pid] == DUE &&
                (place[_pid] == RUN || (place[_pid] == JOIN && !closed && !(SANE_COMPLETE && LISTED(_pid)))) ->
                sanitise(); heartbeat[_pid] = FRESH; write(); CHECK }
    :: d_step { place[_pid] == RUN && current[_pid] && !closed -> sanitise(); closed = 1; write(); CHECK }
    od
}

active proctype last_call() {
end:
    do
    :: d_step { deadline == RUNNING -> deadline = PASSED }
    od
}
