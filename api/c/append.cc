// SPDX-License-Identifier: Apache-2.0
//
// Appends and drafts in C.
#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Result;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

// A delta that lives as long as it may be read; for a draft also the views that it was put from.
struct AppendArrays : DeltaArrays {
  std::shared_ptr<PutViews> put;
};

// Runs `append` with a delta and options, as an asynchronous append.
template <typename Append>
Status AppendKept(std::shared_ptr<PutViews> put, const cairn_delta* delta,
                  const cairn_append_options* options, cairn_ticket** ticket,
                  const Append& append) {
  CAIRN_ASSIGN_OR_RETURN(cairn::AppendOptions converted, ToAppendOptions(options));
  CAIRN_ASSIGN_OR_RETURN(const cairn_append_options read, Read(options));
  auto arrays = std::make_shared<AppendArrays>();
  CAIRN_RETURN_IF_ERROR(arrays->Fill(delta));
  arrays->put = std::move(put);
  converted.owner = arrays;
  CAIRN_RETURN_IF_ERROR(
      Give(ticket, [&] { return append(arrays->delta, std::as_const(converted)); }));
  arrays->CallWhenReleased(read.released, read.released_context);
  return Status::Ok();
}

}  // namespace

extern "C" {

cairn_code cairn_branch_append(cairn_branch* branch, const cairn_delta* delta,
                               const cairn_append_options* options, cairn_ticket** ticket,
                               cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (ticket != nullptr) *ticket = nullptr;
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(delta);
    return AppendKept(nullptr, delta, options, ticket,
                      [&](const cairn::Delta& converted, const cairn::AppendOptions& with) {
                        return branch->value.Append(converted, with);
                      });
  });
}

cairn_code cairn_branch_append_sync(cairn_branch* branch, const cairn_delta* delta,
                                    const cairn_append_options* options, uint64_t* length,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(delta);
    DeltaArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(delta));
    CAIRN_ASSIGN_OR_RETURN(const cairn::AppendOptions converted, ToAppendOptions(options));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t behind,
                           branch->value.AppendSync(arrays.delta, converted));
    if (length != nullptr) *length = behind;
    return Status::Ok();
  });
}

cairn_code cairn_branch_fill(cairn_branch* branch, const cairn_kv_view* kv,
                             const cairn_append_options* options, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(kv);
    KvArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.Fill(kv));
    CAIRN_ASSIGN_OR_RETURN(const cairn::AppendOptions converted, ToAppendOptions(options));
    return branch->value.Fill(arrays.view, converted);
  });
}

cairn_code cairn_branch_begin_append(cairn_branch* branch, uint64_t positions, cairn_draft** draft,
                                     cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(draft);
    CAIRN_C_NEED(branch);
    auto views = std::make_shared<PutViews>();
    CAIRN_RETURN_IF_ERROR(Give(draft, [&] { return branch->value.BeginAppend(positions); }));
    (*draft)->views = std::move(views);
    return Status::Ok();
  });
}

cairn_code cairn_draft_put(cairn_draft* draft, uint32_t layer, const cairn_group_view* view,
                           cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(draft);
    CAIRN_C_NEED(view);
    KvArrays arrays;
    CAIRN_RETURN_IF_ERROR(arrays.FillGroup(view));
    return draft->value.Put(layer, arrays.view.groups[0]);
  });
}

cairn_code cairn_draft_put_from_gpu(cairn_draft* draft, uint32_t layer, const cairn_kv_view* view,
                                    uintptr_t ready, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(draft);
    CAIRN_C_NEED(view);
    std::list<KvArrays> arrays(1);  // To be moved without allocating.
    CAIRN_RETURN_IF_ERROR(arrays.front().Fill(view));
    CAIRN_RETURN_IF_ERROR(draft->value.PutFromGpu(layer, arrays.front().view, ready));
    const cairn::MutexLock lock(&draft->views->mutex);
    draft->views->views.splice(draft->views->views.end(), arrays);
    return Status::Ok();
  });
}

cairn_code cairn_draft_commit(cairn_draft* draft, const cairn_delta* delta,
                              const cairn_append_options* options, cairn_ticket** ticket,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (ticket != nullptr) *ticket = nullptr;
    CAIRN_C_NEED(draft);
    CAIRN_C_NEED(delta);
    return AppendKept(draft->views, delta, options, ticket,
                      [&](const cairn::Delta& converted, const cairn::AppendOptions& with) {
                        return draft->value.Commit(converted, with);
                      });
  });
}

void cairn_draft_abort(cairn_draft* draft) {
  if (draft != nullptr) draft->value.Abort();
}
void cairn_draft_free(cairn_draft* draft) { delete draft; }

}  // extern "C"
