// SPDX-License-Identifier: Apache-2.0
//
// Reading branches in C.
#include <algorithm>

#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/restored.h"
#include "api/c/results.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

using Spans = PlainListOf<cairn_content_spans, cairn_content_span>;

struct StateHolder : cairn_state_at {
  explicit StateHolder(cairn::Branch::StateAt from) : cairn_state_at{}, value(std::move(from)) {
    struct_size = sizeof(cairn_state_at);
    position = value.position;
    if (value.sampler.has_value()) sampler = &(sampler_as_c = ToC(*value.sampler));
    if (value.metadata.has_value()) metadata = &(metadata_as_c = ToC(*value.metadata));
  }
  cairn::Branch::StateAt value;
  cairn_sampler_state sampler_as_c{};
  cairn_app_metadata metadata_as_c{};
};

template <typename Ask>
cairn_code GiveState(const cairn_branch* branch, cairn_state_at** state, cairn_error** error,
                     const Ask& ask) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(state);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(cairn::Branch::StateAt found, ask(branch->value));
    *state = std::make_unique<StateHolder>(std::move(found)).release();
    return Status::Ok();
  });
}

cairn::LayerProgress* Words(cairn_layer_progress* progress) {
  return progress == nullptr ? nullptr : &progress->value;
}

}  // namespace

extern "C" {

void cairn_restore_result_free(cairn_restore_result* result) {
  delete static_cast<Restored*>(result);
}

cairn_code cairn_branch_restore(const cairn_branch* branch, const cairn_restore_request* request,
                                cairn_layer_progress* progress, cairn_restore_result** result,
                                cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (result != nullptr) *result = nullptr;
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(request);
    RestoreArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(request));
    auto holder = std::make_unique<Restored>();
    CAIRN_ASSIGN_OR_RETURN(cairn::RestoreResult restored,
                           branch->value.Restore(arrays.request, Words(progress)));
    holder->Set(std::move(restored));
    if (result != nullptr) *result = holder.release();
    return Status::Ok();
  });
}

cairn_code cairn_branch_restore_async(const cairn_branch* branch,
                                      const cairn_restore_request* request,
                                      cairn_layer_progress* progress, cairn_ticket** ticket,
                                      cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (ticket != nullptr) *ticket = nullptr;
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(request);
    CAIRN_ASSIGN_OR_RETURN(const cairn_restore_request read, Read(request));
    auto arrays = std::make_shared<RestoreArrays>();
    CAIRN_RETURN_IF_ERROR(arrays->Fill(&read));
    cairn::RestoreRequest converted = arrays->request;
    converted.owner = arrays;
    CAIRN_RETURN_IF_ERROR(
        Give(ticket, [&] { return branch->value.RestoreAsync(converted, Words(progress)); }));
    arrays->CallWhenReleased(read.released, read.released_context);
    return Status::Ok();
  });
}

cairn_code cairn_branch_prefetch(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    return branch->value.Prefetch(begin, end);
  });
}
cairn_code cairn_branch_prefetch_gpu(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                     uint32_t gpu, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    return branch->value.Prefetch({.begin = begin, .end = end, .gpu = gpu});
  });
}

cairn_code cairn_branch_read_tokens(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                    uint32_t* tokens, size_t capacity, size_t* count,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(count);
    *count = 0;
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::TokenId> read,
                           branch->value.ReadTokens(begin, end));
    *count = read.size();
    if (read.size() > capacity) {
      return Invalid("capacity is " + std::to_string(capacity) + ", and there are " +
                     std::to_string(read.size()));
    }
    if (!read.empty()) CAIRN_C_NEED(tokens);
    std::copy(read.begin(), read.end(), tokens);
    return Status::Ok();
  });
}

cairn_code cairn_branch_sampler_at(const cairn_branch* branch, uint64_t position,
                                   cairn_state_at** state, cairn_error** error) {
  return GiveState(branch, state, error,
                   [&](const cairn::Branch& of) { return of.SamplerAt(position); });
}
cairn_code cairn_branch_metadata_at(const cairn_branch* branch, uint64_t position,
                                    cairn_state_at** state, cairn_error** error) {
  return GiveState(branch, state, error,
                   [&](const cairn::Branch& of) { return of.MetadataAt(position); });
}
void cairn_state_at_free(cairn_state_at* state) { delete static_cast<StateHolder*>(state); }

cairn_code cairn_branch_spans(const cairn_branch* branch, uint64_t begin, uint64_t end,
                              cairn_content_spans** spans, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(spans);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::ContentSpan> found,
                           branch->value.Spans(begin, end));
    *spans = std::make_unique<Spans>(found, [](const cairn::ContentSpan& span) {
               return ToC(span);
             }).release();
    return Status::Ok();
  });
}
void cairn_content_spans_free(cairn_content_spans* spans) { delete static_cast<Spans*>(spans); }

}  // extern "C"
