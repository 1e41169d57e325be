/* Two-phase commit (Gray and Lamport, 2006, module TwoPhase) with N resource managers.
   Every step is one d_step that ends where it began, so that the states stored are exactly the model's. */

#define WORKING   0
#define PREPARED  1
#define COMMITTED 2
#define ABORTED   3

#define NONE   0
#define COMMIT 1
#define ABORT  2

byte state[N];
bool sent[N], received[N];
byte decision;

#if N == 3
#define ALL(x) (x[0] && x[1] && x[2])
#define ANY(x, v) (x[0] == v || x[1] == v || x[2] == v)
#elif N == 8
#define ALL(x) (x[0] && x[1] && x[2] && x[3] && x[4] && x[5] && x[6] && x[7])
#define ANY(x, v) (x[0] == v || x[1] == v || x[2] == v || x[3] == v || x[4] == v || x[5] == v || x[6] == v || x[7] == v)
#endif

#define AGREE assert(!(ANY(state, COMMITTED) && ANY(state, ABORTED)))

active [N] proctype resource_manager() {
end:
    do
    :: d_step { decision == NONE && sent[_pid] && !received[_pid] -> received[_pid] = 1 }
    :: d_step { state[_pid] == WORKING -> state[_pid] = PREPARED; sent[_pid] = 1 }
    :: d_step { state[_pid] == WORKING -> state[_pid] = ABORTED; AGREE }
    :: d_step { decision == COMMIT && state[_pid] != COMMITTED -> state[_pid] = COMMITTED; AGREE }
    :: d_step { decision == ABORT && state[_pid] != ABORTED -> state[_pid] = ABORTED; AGREE }
    od
}

active proctype transaction_manager() {
end:
    do
    :: d_step { decision == NONE && ALL(received) -> decision = COMMIT }
    :: d_step { decision == NONE -> decision = ABORT }
    od
}
