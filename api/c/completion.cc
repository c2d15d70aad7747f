// SPDX-License-Identifier: Apache-2.0
//
// Tickets and completion queues in C.
#include <new>

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/restored.h"

using cairn::Status;
using cairn::StatusCode;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

extern "C" {

cairn_code cairn_layer_progress_new(size_t layers, cairn_layer_progress** progress,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(progress);
    if (layers > cairn::kMaxLayerGroups * cairn::kMaxLayers) {
      return Invalid("layers is " + std::to_string(layers) + ", more than any model has");
    }
    *progress = std::make_unique<cairn_layer_progress>(layers).release();
    return Status::Ok();
  });
}
cairn_layer_state cairn_layer_progress_state(const cairn_layer_progress* progress, size_t layer) {
  if (progress == nullptr || layer >= progress->words.size()) return CAIRN_LAYER_FAILED;
  return progress->words[layer].load(std::memory_order_acquire);
}
void cairn_layer_progress_free(cairn_layer_progress* progress) { delete progress; }

bool cairn_ticket_done(const cairn_ticket* ticket) {
  return ticket != nullptr && ticket->value.done();
}
bool cairn_ticket_released(const cairn_ticket* ticket) {
  return ticket != nullptr && ticket->value.released();
}
cairn_code cairn_ticket_status(const cairn_ticket* ticket, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(ticket);
    return ticket->value.status();
  });
}
uint64_t cairn_ticket_length(const cairn_ticket* ticket) {
  return ticket == nullptr ? 0 : ticket->value.length();
}
bool cairn_ticket_kv_shed(const cairn_ticket* ticket) {
  return ticket != nullptr && ticket->value.kv_shed();
}
cairn_code cairn_ticket_restored(const cairn_ticket* ticket, cairn_restore_result** result,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(result);
    CAIRN_C_NEED(ticket);
    const auto restored = ticket->value.restored();
    if (restored == nullptr) {
      return Status(StatusCode::kNotFound, "the ticket is of no restore that went well");
    }
    auto holder = std::make_unique<Restored>();
    holder->Set(*restored);
    *result = holder.release();
    return Status::Ok();
  });
}
cairn_code cairn_ticket_wait(cairn_ticket* ticket, uint64_t timeout_ns, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(ticket);
    return ticket->value.Wait(timeout_ns);
  });
}
cairn_code cairn_ticket_wait_for_layer(const cairn_ticket* ticket, size_t layer,
                                       cairn_layer_state state, uint64_t timeout_ns,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(ticket);
    cairn::LayerState wanted{};
    CAIRN_RETURN_IF_ERROR(ToEnum(state, cairn::kLayerFailed, "state", &wanted));
    return ticket->value.WaitForLayer(layer, wanted, timeout_ns);
  });
}
cairn_code cairn_ticket_cancel(cairn_ticket* ticket, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(ticket);
    return ticket->value.Cancel();
  });
}
void cairn_ticket_free(cairn_ticket* ticket) { delete ticket; }

int cairn_completion_queue_event_fd(const cairn_completion_queue* queue) {
  return queue == nullptr ? -1 : queue->value.event_fd();
}
size_t cairn_completion_queue_drain(cairn_completion_queue* queue, cairn_completion* completions,
                                    size_t max) {
  size_t count = 0;
  while (queue != nullptr && completions != nullptr && count < max) {
    // A completion that was taken owns its ticket, so memory for that is allocated first.
    auto* const ticket = new (std::nothrow) cairn_ticket();
    if (ticket == nullptr) break;
    auto taken = queue->value.Drain(1);
    if (taken.empty()) {
      delete ticket;
      break;
    }
    ticket->value = std::move(taken[0].ticket);
    completions[count++] = {taken[0].user_data, ticket,
                            static_cast<cairn_code>(taken[0].status.code())};
  }
  return count;
}
bool cairn_completion_queue_wait(cairn_completion_queue* queue, uint64_t timeout_ns) {
  return queue != nullptr && queue->value.Wait(timeout_ns);
}
void cairn_completion_queue_free(cairn_completion_queue* queue) { delete queue; }

}  // extern "C"
