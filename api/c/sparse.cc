// SPDX-License-Identifier: Apache-2.0
//
// Sparse sessions in C.
#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

cairn::Result<cairn::SparseOptions> ToSparseOptions(const cairn_sparse_options* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_sparse_options read, Read(given));
  return cairn::SparseOptions{.group = read.group,
                              .planes = read.planes,
                              .piece_tokens = read.piece_tokens,
                              .page_tokens = read.page_tokens,
                              .slots = read.slots,
                              .wanted_max = read.wanted_max,
                              .end = read.end,
                              .tokens_max = read.tokens_max,
                              .warm = read.warm};
}

cairn::Result<cairn::SparseWanted> ToWanted(const cairn_sparse_wanted* given) {
  CAIRN_ASSIGN_OR_RETURN(const cairn_sparse_wanted read, Read(given));
  cairn::SparseWanted wanted{.layer = read.layer,
                             .pieces = read.pieces,
                             .count = read.count,
                             .stride = read.stride,
                             .on_device = read.on_device,
                             .stream = read.stream,
                             .timeout_ns = read.timeout_ns};
  CAIRN_RETURN_IF_ERROR(
      ToEnum(read.mode, cairn::SparseMode::kRelaxed, "cairn_sparse_wanted::mode", &wanted.mode));
  return wanted;
}

cairn_sparse_view ToC(const cairn::SparseView& view) {
  auto c = Sized<cairn_sparse_view>::Default();
  for (size_t i = 0; i < view.planes.size(); ++i) {
    const cairn::SparseView::PlaneSlots& plane = view.planes[i];
    c.planes[i] = {plane.base, plane.head_stride, plane.piece_bytes};
  }
  c.slot_of = view.slot_of;
  c.slot_of_stride = view.slot_of_stride;
  return c;
}

// A fetch, or the capture of one.
using ViewCall =
    cairn::Result<cairn::SparseView> (cairn::SparseSession::*)(const cairn::SparseWanted&);
cairn_code GiveView(cairn_sparse_session* session, const cairn_sparse_wanted* wanted,
                    cairn_sparse_view* view, cairn_error** error, ViewCall call) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(wanted);
    CAIRN_C_NEED(view);
    CAIRN_RETURN_IF_ERROR(CheckStructSize(view, sizeof(*view), "cairn_sparse_view"));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SparseWanted converted, ToWanted(wanted));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SparseView given, (session->value.*call)(converted));
    Write(ToC(given), view);
    return Status::Ok();
  });
}

}  // namespace

namespace cairn::capi {

Status GiveStats(const SparseStats& counted, cairn_sparse_stats* stats) {
  CAIRN_C_NEED(stats);
  CAIRN_RETURN_IF_ERROR(CheckStructSize(stats, sizeof(*stats), "cairn_sparse_stats"));
  auto c = Sized<cairn_sparse_stats>::Default();
  c.fetches = counted.fetches;
  c.wanted = counted.wanted;
  c.faults = counted.faults;
  c.left_out = counted.left_out;
  c.pages_read = counted.pages_read;
  c.page_bytes_read = counted.page_bytes_read;
  Write(c, stats);
  return Status::Ok();
}

}  // namespace cairn::capi

extern "C" {

cairn_code cairn_sparse_arena_make(const cairn_store* store, const cairn_gpu* gpu,
                                   const cairn_sparse_arena_options* options,
                                   cairn_sparse_arena** arena, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(arena);
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(gpu);
    CAIRN_ASSIGN_OR_RETURN(const cairn_sparse_arena_options read, Read(options));
    const cairn::SparseArenaOptions converted{.pinned_bytes = read.pinned_bytes,
                                              .device_bytes = read.device_bytes};
    return Give(arena,
                [&] { return cairn::SparseArena::Make(store->value, *gpu->value, converted); });
  });
}

cairn_code cairn_sparse_arena_open(cairn_sparse_arena* arena, const cairn_branch* branch,
                                   const cairn_sparse_options* options,
                                   cairn_sparse_session** session, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(session);
    CAIRN_C_NEED(arena);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const cairn::SparseOptions converted, ToSparseOptions(options));
    return Give(session, [&] { return arena->value.Open(branch->value, converted); });
  });
}

uint64_t cairn_sparse_arena_pinned_bytes(const cairn_sparse_arena* arena) {
  return arena == nullptr ? 0 : arena->value.pinned_bytes();
}
uint64_t cairn_sparse_arena_device_bytes(const cairn_sparse_arena* arena) {
  return arena == nullptr ? 0 : arena->value.device_bytes();
}
cairn_code cairn_sparse_arena_stats(const cairn_sparse_arena* arena, cairn_sparse_stats* stats,
                                    cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(arena);
    return GiveStats(arena->value.stats(), stats);
  });
}
void cairn_sparse_arena_free(cairn_sparse_arena* arena) { delete arena; }

cairn_code cairn_sparse_session_fetch(cairn_sparse_session* session,
                                      const cairn_sparse_wanted* wanted, cairn_sparse_view* view,
                                      cairn_error** error) {
  return GiveView(session, wanted, view, error, &cairn::SparseSession::Fetch);
}

cairn_code cairn_sparse_session_prefetch(cairn_sparse_session* session,
                                         const cairn_sparse_wanted* wanted, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    CAIRN_C_NEED(wanted);
    CAIRN_ASSIGN_OR_RETURN(const cairn::SparseWanted converted, ToWanted(wanted));
    return session->value.Prefetch(converted);
  });
}

cairn_code cairn_sparse_session_capture(cairn_sparse_session* session,
                                        const cairn_sparse_wanted* wanted, cairn_sparse_view* view,
                                        cairn_error** error) {
  return GiveView(session, wanted, view, error, &cairn::SparseSession::Capture);
}

cairn_code cairn_sparse_session_replay(cairn_sparse_session* const* sessions, size_t count,
                                       uintptr_t stream, cairn_sparse_launch launch, void* context,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(launch);
    if (count != 0) CAIRN_C_NEED(sessions);
    std::vector<cairn::SparseSession> values;
    for (size_t i = 0; i < count; ++i) {
      CAIRN_C_NEED(sessions[i]);
      values.push_back(sessions[i]->value);
    }
    return cairn::SparseSession::Replay(values, stream, [&] {
      const int failed = launch(context);
      if (failed == 0) return Status::Ok();
      return Status(cairn::StatusCode::kIoError, "sparse: launch gave " + std::to_string(failed));
    });
  });
}

cairn_code cairn_sparse_session_save(cairn_sparse_session* session, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Save();
  });
}

cairn_code cairn_sparse_session_extend(cairn_sparse_session* session, uint64_t end,
                                       cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return session->value.Extend(end);
  });
}

uint64_t cairn_sparse_session_pieces(const cairn_sparse_session* session) {
  return session == nullptr ? 0 : session->value.pieces();
}
uint64_t cairn_sparse_session_device_bytes(const cairn_sparse_session* session) {
  return session == nullptr ? 0 : session->value.device_bytes();
}
cairn_code cairn_sparse_session_stats(const cairn_sparse_session* session,
                                      cairn_sparse_stats* stats, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(session);
    return GiveStats(session->value.stats(), stats);
  });
}
void cairn_sparse_session_free(cairn_sparse_session* session) { delete session; }

}  // extern "C"
