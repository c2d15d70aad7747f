// SPDX-License-Identifier: Apache-2.0
//
// Branches in C: their properties, and changes without content.
#include "api/c/convert.h"
#include "api/c/handles.h"
#include "api/c/results.h"

using cairn::Durability;
using cairn::Status;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

namespace {

using InfoHolder = Holding<BranchInfoAsC, cairn::BranchInfo>;
using Holes = PlainListOf<cairn_kv_holes, cairn_kv_hole>;
using Path = PlainListOf<cairn_path, cairn_path_step>;

cairn_kv_hole HoleAsC(const cairn::KvHole& hole) { return {hole.group, hole.begin, hole.end}; }

cairn_path_step StepAsC(const cairn::PathStep& step) {
  return {static_cast<uint64_t>(step.node), static_cast<uint64_t>(step.parent), step.begin,
          step.end, static_cast<uint64_t>(step.owner)};
}

// Returns a number that the branch has.
template <typename Ask>
cairn_code Number(const cairn_branch* branch, uint64_t* length, cairn_error** error,
                  const Ask& ask) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    CAIRN_C_NEED(length);
    CAIRN_ASSIGN_OR_RETURN(*length, ask(branch->value));
    return Status::Ok();
  });
}

// Runs a change of the branch.
template <typename Do>
cairn_code Change(cairn_branch* branch, cairn_durability durability, cairn_error** error,
                  const Do& change) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(branch);
    Durability level{};
    CAIRN_RETURN_IF_ERROR(ToDurability(durability, &level));
    return change(branch->value, level);
  });
}

}  // namespace

extern "C" {

uint64_t cairn_branch_id(const cairn_branch* branch) {
  return branch == nullptr ? 0 : static_cast<uint64_t>(branch->value.id());
}

cairn_code cairn_branch_get_info(const cairn_branch* branch, cairn_branch_info** info,
                                 cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(info);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(cairn::BranchInfo value, branch->value.Info());
    *info = std::make_unique<InfoHolder>(std::move(value)).release();
    return Status::Ok();
  });
}
void cairn_branch_info_free(cairn_branch_info* info) { delete static_cast<InfoHolder*>(info); }

cairn_code cairn_branch_length(const cairn_branch* branch, uint64_t* length, cairn_error** error) {
  return Number(branch, length, error, [](const cairn::Branch& of) { return of.length(); });
}
cairn_code cairn_branch_durable_length(const cairn_branch* branch, uint64_t* length,
                                       cairn_error** error) {
  return Number(branch, length, error, [](const cairn::Branch& of) { return of.durable_length(); });
}
cairn_code cairn_branch_restorable_length(const cairn_branch* branch, uint64_t at_most,
                                          uint64_t* length, cairn_error** error) {
  return Number(branch, length, error,
                [&](const cairn::Branch& of) { return of.RestorableLength(at_most); });
}

cairn_code cairn_branch_path(const cairn_branch* branch, cairn_path** path, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(path);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::PathStep> steps, branch->value.Path());
    *path = std::make_unique<Path>(steps, StepAsC).release();
    return Status::Ok();
  });
}
void cairn_path_free(cairn_path* path) { delete static_cast<Path*>(path); }

cairn_code cairn_branch_evicted_kv(const cairn_branch* branch, uint64_t begin, uint64_t end,
                                   cairn_kv_holes** holes, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(holes);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<cairn::KvHole> found,
                           branch->value.EvictedKv(begin, end));
    *holes = std::make_unique<Holes>(found, HoleAsC).release();
    return Status::Ok();
  });
}
void cairn_kv_holes_free(cairn_kv_holes* holes) { delete static_cast<Holes*>(holes); }

cairn_code cairn_branch_set_keep(cairn_branch* branch, const cairn_keep* keep,
                                 cairn_durability durability, cairn_error** error) {
  return Change(branch, durability, error, [&](cairn::Branch& of, Durability level) -> Status {
    CAIRN_ASSIGN_OR_RETURN(const cairn::Keep converted, ToKeep(keep));
    return of.SetKeep(converted, level);
  });
}
cairn_code cairn_branch_fork_at(const cairn_branch* branch, uint64_t position,
                                const cairn_branch_options* options, cairn_branch** fork,
                                cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(fork);
    CAIRN_C_NEED(branch);
    CAIRN_ASSIGN_OR_RETURN(const cairn::BranchOptions converted, ToBranchOptions(options));
    return Give(fork, [&] { return branch->value.ForkAt(position, converted); });
  });
}
cairn_code cairn_branch_rewind(cairn_branch* branch, uint64_t length, cairn_durability durability,
                               cairn_error** error) {
  return Change(branch, durability, error,
                [&](cairn::Branch& of, Durability level) { return of.Rewind(length, level); });
}
cairn_code cairn_branch_rename(cairn_branch* branch, const char* name, cairn_durability durability,
                               cairn_error** error) {
  return Change(branch, durability, error, [&](cairn::Branch& of, Durability level) -> Status {
    CAIRN_C_NEED(name);
    return of.Rename(name, level);
  });
}
cairn_code cairn_branch_drop(cairn_branch* branch, cairn_durability durability,
                             cairn_error** error) {
  return Change(branch, durability, error,
                [](cairn::Branch& of, Durability level) { return of.Drop(level); });
}
void cairn_branch_free(cairn_branch* branch) { delete branch; }

}  // extern "C"
