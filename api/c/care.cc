// SPDX-License-Identifier: Apache-2.0
//
// Maintenance of stores in C: flushing, sealing, copies, checks, and the store's own figures.
#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"

using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

struct DamageAsC : cairn_damage {
  explicit DamageAsC(const cairn::VerifyReport::Damage& damage) : cairn_damage{} {
    struct_size = sizeof(cairn_damage);
    where = damage.where.c_str();
    what = damage.what.c_str();
    sequence = damage.sequence;
  }
};

struct ReportHolder : cairn_verify_report {
  explicit ReportHolder(cairn::VerifyReport report)
      : cairn_verify_report{}, all(std::move(report.damages)) {
    struct_size = sizeof(cairn_verify_report);
    records = report.records;
    strips = report.strips;
    index_tables = report.index_tables;
    tables = report.tables;
    frames = report.frames;
    bytes = report.bytes;
    damages = all.data();
    damage_count = all.size();
  }
  Items<cairn_damage, DamageAsC, cairn::VerifyReport::Damage> all;
};

template <typename Do>
cairn_code OnStore(cairn_store* store, cairn_error** error, const Do& call) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    return call(store->value);
  });
}

template <typename Ask>
cairn_code GiveText(const cairn_store* store, char** text, cairn_error** error, const Ask& ask) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(text);
    CAIRN_C_NEED(store);
    CAIRN_RETURN_IF_ERROR(CheckProcess(*store));
    *text = NewText(ask(store->value));
    return Status::Ok();
  });
}

std::function<void(uint64_t, uint64_t)> ToProgress(cairn_progress progress, void* context) {
  if (progress == nullptr) return {};
  return [progress, context](uint64_t done, uint64_t total) { progress(context, done, total); };
}

}  // namespace

extern "C" {

cairn_code cairn_store_new_completion_queue(cairn_store* store, cairn_completion_queue** queue,
                                            cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(queue);
    CAIRN_C_NEED(store);
    return Give(queue, [&] { return store->value.NewCompletionQueue(); });
  });
}

cairn_code cairn_store_flush(cairn_store* store, cairn_error** error) {
  return OnStore(store, error, [](cairn::Store& on) { return on.Flush(); });
}
cairn_code cairn_store_compact(cairn_store* store, cairn_error** error) {
  return OnStore(store, error, [](cairn::Store& on) { return on.Compact(); });
}
cairn_code cairn_store_pause_background(cairn_store* store, cairn_error** error) {
  return OnStore(store, error, [](cairn::Store& on) { return on.PauseBackground(); });
}
cairn_code cairn_store_resume_background(cairn_store* store, cairn_error** error) {
  return OnStore(store, error, [](cairn::Store& on) { return on.ResumeBackground(); });
}

cairn_code cairn_store_refresh(cairn_store* store, cairn_refresh_result* result,
                               cairn_error** error) {
  return OnStore(store, error, [&](cairn::Store& on) -> Status {
    if (result != nullptr) {
      CAIRN_RETURN_IF_ERROR(CheckStructSize(result, sizeof(*result), "cairn_refresh_result"));
    }
    CAIRN_ASSIGN_OR_RETURN(const cairn::RefreshResult refreshed, on.Refresh());
    if (result == nullptr) return Status::Ok();
    auto c = Sized<cairn_refresh_result>::Default();
    c.changed = refreshed.changed;
    c.sequence = refreshed.sequence;
    Write(c, result);
    return Status::Ok();
  });
}

cairn_code cairn_store_checkpoint(cairn_store* store, const char* path, cairn_progress progress,
                                  void* context, cairn_checkpoint_info* info, cairn_error** error) {
  return OnStore(store, error, [&](cairn::Store& on) -> Status {
    CAIRN_C_NEED(path);
    if (info != nullptr) {
      CAIRN_RETURN_IF_ERROR(CheckStructSize(info, sizeof(*info), "cairn_checkpoint_info"));
    }
    CAIRN_ASSIGN_OR_RETURN(const cairn::CheckpointInfo made,
                           on.Checkpoint(path, ToProgress(progress, context)));
    if (info == nullptr) return Status::Ok();
    auto c = Sized<cairn_checkpoint_info>::Default();
    c.sequence = made.sequence;
    c.linked_tables = made.linked_tables;
    c.linked_bytes = made.linked_bytes;
    c.copied_tables = made.copied_tables;
    c.copied_bytes = made.copied_bytes;
    Write(c, info);
    return Status::Ok();
  });
}

cairn_code cairn_store_verify(const cairn_store* store, cairn_verify_level level,
                              cairn_progress progress, void* context, cairn_verify_report** report,
                              cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(report);
    CAIRN_C_NEED(store);
    cairn::VerifyLevel how{};
    CAIRN_RETURN_IF_ERROR(ToEnum(level, cairn::VerifyLevel::kAll, "level", &how));
    CAIRN_ASSIGN_OR_RETURN(cairn::VerifyReport found,
                           store->value.Verify(how, ToProgress(progress, context)));
    *report = std::make_unique<ReportHolder>(std::move(found)).release();
    return Status::Ok();
  });
}
void cairn_verify_report_free(cairn_verify_report* report) {
  delete static_cast<ReportHolder*>(report);
}

cairn_code cairn_store_poisoned(const cairn_store* store, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(store);
    return store->value.poisoned();
  });
}
cairn_code cairn_store_io_name(const cairn_store* store, char** text, cairn_error** error) {
  return GiveText(store, text, error, [](const cairn::Store& of) { return of.io_name(); });
}
cairn_code cairn_store_sync_method(const cairn_store* store, char** text, cairn_error** error) {
  return GiveText(store, text, error, [](const cairn::Store& of) { return of.sync_method(); });
}
cairn_code cairn_store_recovery_note(const cairn_store* store, char** text, cairn_error** error) {
  return GiveText(store, text, error, [](const cairn::Store& of) { return of.recovery_note(); });
}

}  // extern "C"
