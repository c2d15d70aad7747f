// SPDX-License-Identifier: Apache-2.0
//
// Of the C API: how asynchronous calls end. The C++ twin is cairn/completion.h.
#pragma once

#include "cairn/c_base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_restore_result cairn_restore_result;  // cairn/c_restore.h

typedef uint32_t cairn_layer_state;  // cairn::LayerState
enum {
  CAIRN_LAYER_PENDING = 0,
  CAIRN_LAYER_ENQUEUED = 1,
  CAIRN_LAYER_COMPLETE = 2,
  CAIRN_LAYER_FAILED = 3
};

// How far the layers of a restore are: cairn::LayerProgress, with the words that it needs. Given to
// one restore at a time, and freed when that is over. Thread-safe.
typedef struct cairn_layer_progress cairn_layer_progress;
// `layers`: one a (group, layer) of the view, in view order.
CAIRN_API cairn_code cairn_layer_progress_new(size_t layers, cairn_layer_progress** progress,
                                              cairn_error** error);
// Never blocks; with acquire order. CAIRN_LAYER_FAILED of a layer that there is not.
CAIRN_API cairn_layer_state cairn_layer_progress_state(const cairn_layer_progress* progress,
                                                       size_t layer);
CAIRN_API void cairn_layer_progress_free(cairn_layer_progress* progress);

// One asynchronous call: cairn::Ticket. May be freed at any time; the call goes on. Thread-safe.
typedef struct cairn_ticket cairn_ticket;
CAIRN_API bool cairn_ticket_done(const cairn_ticket* ticket);
// What the call borrowed may be reused.
CAIRN_API bool cairn_ticket_released(const cairn_ticket* ticket);
// How the call ended; CAIRN_BUSY until it is over.
CAIRN_API cairn_code cairn_ticket_status(const cairn_ticket* ticket, cairn_error** error);
// Of an append the branch's length behind it; of objects their bytes.
CAIRN_API uint64_t cairn_ticket_length(const cairn_ticket* ticket);
CAIRN_API bool cairn_ticket_kv_shed(const cairn_ticket* ticket);
// What a restore delivered. CAIRN_NOT_FOUND unless it is over and went well.
CAIRN_API cairn_code cairn_ticket_restored(const cairn_ticket* ticket,
                                           cairn_restore_result** result, cairn_error** error);
// Blocks until the call is over and returns how it ended; CAIRN_DEADLINE_EXCEEDED at the time-out
// of the wait, which changes nothing.
CAIRN_API cairn_code cairn_ticket_wait(cairn_ticket* ticket, uint64_t timeout_ns,
                                       cairn_error** error);
// Blocks until the layer is CAIRN_LAYER_ENQUEUED or _COMPLETE, as `state` says.
CAIRN_API cairn_code cairn_ticket_wait_for_layer(const cairn_ticket* ticket, size_t layer,
                                                 cairn_layer_state state, uint64_t timeout_ns,
                                                 cairn_error** error);
// Ends the call now, and returns how it ended: CAIRN_CANCELLED, CAIRN_UNKNOWN_OUTCOME, or as it had
// ended before. No memory of the call is touched any more then.
CAIRN_API cairn_code cairn_ticket_cancel(cairn_ticket* ticket, cairn_error** error);
CAIRN_API void cairn_ticket_free(cairn_ticket* ticket);

// The end of a call. Never gets another field.
typedef struct cairn_completion {
  uint64_t user_data;
  cairn_ticket* ticket;  // The caller's, to be freed; cairn_ticket_status tells the message.
  cairn_code code;
} cairn_completion;

// Collects the ends of many calls: cairn::CompletionQueue. Thread-safe.
typedef struct cairn_completion_queue cairn_completion_queue;
// Readable (EPOLLIN) while completions wait. The queue's own; -1 where there is none.
CAIRN_API int cairn_completion_queue_event_fd(const cairn_completion_queue* queue);
// Takes up to `max` completions, oldest first, and returns how many. Never blocks. Without memory
// it returns those that it had memory for; the others stay.
CAIRN_API size_t cairn_completion_queue_drain(cairn_completion_queue* queue,
                                              cairn_completion* completions, size_t max);
// Blocks until a completion waits (true) or the time is up (false).
CAIRN_API bool cairn_completion_queue_wait(cairn_completion_queue* queue, uint64_t timeout_ns);
// Calls that were given the queue go on, and end nowhere.
CAIRN_API void cairn_completion_queue_free(cairn_completion_queue* queue);

#ifdef __cplusplus
}  // extern "C"
#endif
