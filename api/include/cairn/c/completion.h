// SPDX-License-Identifier: Apache-2.0
//
// C API: how asynchronous calls end. The C++ twin is cairn/completion.h, where timeouts of 0 are
// explained. Everything here but the `free` functions may be called from any thread at once.
#pragma once

#include "cairn/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_restore_result cairn_restore_result;  // cairn/c/restore.h

// cairn::LayerState: how far a layer of a restore is. Compare with the names, never with a number.
typedef uint32_t cairn_layer_state;
enum {
  CAIRN_LAYER_PENDING = 0,   // Not to be used.
  CAIRN_LAYER_ENQUEUED = 1,  // GPU: behind the layer's event; the restore may still fail.
  CAIRN_LAYER_COMPLETE = 2,  // Verified and in place.
  CAIRN_LAYER_FAILED = 3     // The restore ended without it.
};

// How far the layers of a restore are: cairn::LayerProgress, with the words that it needs. Given to
// one restore at a time, and freed when that is over. Thread-safe.
typedef struct cairn_layer_progress cairn_layer_progress;
// `layers`: one a (group, layer) of the view, in view order; more are fine. CAIRN_INVALID_ARGUMENT:
// more than any model has.
CAIRN_API cairn_code cairn_layer_progress_new(size_t layers, cairn_layer_progress** progress,
                                              cairn_error** error);
// Never blocks; with acquire order. CAIRN_LAYER_FAILED for a layer that does not exist.
CAIRN_API cairn_layer_state cairn_layer_progress_state(const cairn_layer_progress* progress,
                                                       size_t layer);
CAIRN_API void cairn_layer_progress_free(cairn_layer_progress* progress);

// One asynchronous call: cairn::Ticket. May be freed at any time; the call goes on. Thread-safe.
typedef struct cairn_ticket cairn_ticket;
// True once the call is over; its status is final then. Never blocks.
CAIRN_API bool cairn_ticket_done(const cairn_ticket* ticket);
// True once the memory that the call borrowed may be reused. Never blocks.
CAIRN_API bool cairn_ticket_released(const cairn_ticket* ticket);
// How the call ended; CAIRN_BUSY until it is over. Never blocks.
CAIRN_API cairn_code cairn_ticket_status(const cairn_ticket* ticket, cairn_error** error);
// An append's: the branch's length behind it, known at once. A put's or get's: the bytes of the
// object, known once the ticket is released. Else 0. Never blocks.
CAIRN_API uint64_t cairn_ticket_length(const cairn_ticket* ticket);
// True if the tokens were kept and the KV was not (CAIRN_OVERLOAD_SHED_KV, or cairn_persist). Never
// blocks.
CAIRN_API bool cairn_ticket_kv_shed(const cairn_ticket* ticket);
// The result of a restore; the caller frees it with cairn_restore_result_free. Never blocks.
// CAIRN_NOT_FOUND: the call is no restore, is not over, or failed.
CAIRN_API cairn_code cairn_ticket_restored(const cairn_ticket* ticket,
                                           cairn_restore_result** result, cairn_error** error);
// Blocks until the call is over and returns how it ended. With UINT64_MAX this thread may lead the
// group commit that it waits for. CAIRN_DEADLINE_EXCEEDED at the time-out of the wait, which
// changes nothing; a call that ran out of time itself has the same code, and cairn_ticket_done
// distinguishes them.
CAIRN_API cairn_code cairn_ticket_wait(cairn_ticket* ticket, uint64_t timeout_ns,
                                       cairn_error** error);
// Blocks until the layer is CAIRN_LAYER_ENQUEUED or _COMPLETE, as `state` says, or the restore is
// over: then it returns how that ended. The progress must outlive the wait.
//   CAIRN_DEADLINE_EXCEEDED: as of cairn_ticket_wait.
//   CAIRN_INVALID_ARGUMENT: another state, or there is no such layer.
CAIRN_API cairn_code cairn_ticket_wait_for_layer(const cairn_ticket* ticket, size_t layer,
                                                 cairn_layer_state state, uint64_t timeout_ns,
                                                 cairn_error** error);
// Ends the call now, and returns how it ended: CAIRN_CANCELLED (nothing was applied),
// CAIRN_UNKNOWN_OUTCOME (it had been given to the log), or as it had ended before. Blocks until a
// call that is reading or writing the caller's memory has noticed. No memory of the call is touched
// any more then.
CAIRN_API cairn_code cairn_ticket_cancel(cairn_ticket* ticket, cairn_error** error);
// Frees the handle alone: the call goes on, with what it borrows.
CAIRN_API void cairn_ticket_free(cairn_ticket* ticket);

// The end of a call. Never gets another field.
typedef struct cairn_completion {
  uint64_t user_data;    // As the call's options said.
  cairn_ticket* ticket;  // The caller's, to be freed; cairn_ticket_status has the message.
  cairn_code code;       // How the call ended.
} cairn_completion;

// Collects the ends of many calls: cairn::CompletionQueue. Thread-safe. Made by
// cairn_store_new_completion_queue; may be freed before or after the store.
typedef struct cairn_completion_queue cairn_completion_queue;
// An eventfd: readable (EPOLLIN) while completions wait. The queue's own: poll it, neither read nor
// close it. -1 where there is none: of NULL, in a child of fork(), or when the process had no
// descriptor left; the calls below work then as well.
CAIRN_API int cairn_completion_queue_event_fd(const cairn_completion_queue* queue);
// Takes up to `max` completions, oldest first, and returns how many. Never blocks. Each ticket in
// them is the caller's, to be freed. Without memory it returns those that it had memory for; the
// others stay.
CAIRN_API size_t cairn_completion_queue_drain(cairn_completion_queue* queue,
                                              cairn_completion* completions, size_t max);
// Blocks until a completion waits (true) or the time is up (false). Takes nothing out. False at
// once of NULL, and in a child of fork().
CAIRN_API bool cairn_completion_queue_wait(cairn_completion_queue* queue, uint64_t timeout_ns);
// Calls that were given the queue go on, and end nowhere.
CAIRN_API void cairn_completion_queue_free(cairn_completion_queue* queue);

#ifdef __cplusplus
}  // extern "C"
#endif
