// SPDX-License-Identifier: Apache-2.0
//
// Batches of changes in C.
#include <algorithm>
#include <list>

#include "api/c/convert.h"
#include "api/c/handles.h"

using cairn::Status;
using cairn::WriteBatch;
using namespace cairn::capi;  // NOLINT(google-build-using-namespace): this is its outside.

struct cairn_write_batch {
  WriteBatch value;
  std::list<DeltaArrays> deltas;  // Its elements do not move.
};

namespace {

size_t CreatedBy(const WriteBatch& batch) {
  return static_cast<size_t>(
      std::count_if(batch.ops().begin(), batch.ops().end(), [](const WriteBatch::Op& op) {
        return op.kind == WriteBatch::Op::Kind::kCreate || op.kind == WriteBatch::Op::Kind::kFork;
      }));
}

WriteBatch::Target TargetOf(const cairn_branch* branch, int32_t created) {
  return branch != nullptr ? WriteBatch::Target(branch->value) : WriteBatch::Target(created);
}

template <typename Add>
cairn_code AddTo(cairn_write_batch* batch, cairn_error** error, const Add& add) {
  return Call(error, [&]() -> Status {
    CAIRN_C_NEED(batch);
    // Refuse here: a batch that no store accepts must not fill memory.
    if (batch->value.ops().size() >= cairn::kMaxBatchOps) {
      return Invalid("the batch has " + std::to_string(cairn::kMaxBatchOps) + " changes already");
    }
    return add();
  });
}

}  // namespace

extern "C" {

cairn_code cairn_write_batch_new(cairn_write_batch** batch, cairn_error** error) {
  return Call(error, [&]() -> Status {
    CAIRN_C_OUT(batch);
    *batch = std::make_unique<cairn_write_batch>().release();
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_create(cairn_write_batch* batch, uint64_t model,
                                    const cairn_branch_options* options, int32_t* created,
                                    cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(cairn::BranchOptions converted, ToBranchOptions(options));
    const int index = batch->value.Create(cairn::ModelId{model}, std::move(converted));
    if (created != nullptr) *created = index;
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_fork(cairn_write_batch* batch, const cairn_branch* from,
                                  int32_t from_created, uint64_t position,
                                  const cairn_branch_options* options, int32_t* created,
                                  cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    CAIRN_ASSIGN_OR_RETURN(cairn::BranchOptions converted, ToBranchOptions(options));
    const int index =
        batch->value.Fork(TargetOf(from, from_created), position, std::move(converted));
    if (created != nullptr) *created = index;
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_append(cairn_write_batch* batch, const cairn_branch* to,
                                    int32_t to_created, const cairn_delta* delta,
                                    uint64_t expected_length, cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    CAIRN_C_NEED(delta);
    std::list<DeltaArrays> arrays(1);  // To be moved without allocating, or freed after an error.
    CAIRN_RETURN_IF_ERROR(arrays.front().Fill(delta));
    std::optional<uint64_t> expected;
    if (expected_length != UINT64_MAX) expected = expected_length;
    batch->value.Append(TargetOf(to, to_created), arrays.front().delta, expected);
    batch->deltas.splice(batch->deltas.end(), arrays);
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_rewind(cairn_write_batch* batch, const cairn_branch* branch,
                                    int32_t created, uint64_t length, cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    batch->value.Rewind(TargetOf(branch, created), length);
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_rename(cairn_write_batch* batch, const cairn_branch* branch,
                                    int32_t created, const char* name, cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    CAIRN_C_NEED(name);
    batch->value.Rename(TargetOf(branch, created), String(name));
    return Status::Ok();
  });
}
cairn_code cairn_write_batch_drop(cairn_write_batch* batch, const cairn_branch* branch,
                                  int32_t created, cairn_error** error) {
  return AddTo(batch, error, [&]() -> Status {
    batch->value.Drop(TargetOf(branch, created));
    return Status::Ok();
  });
}
size_t cairn_write_batch_size(const cairn_write_batch* batch) {
  return batch == nullptr ? 0 : batch->value.ops().size();
}
size_t cairn_write_batch_created_count(const cairn_write_batch* batch) {
  return batch == nullptr ? 0 : CreatedBy(batch->value);
}
void cairn_write_batch_free(cairn_write_batch* batch) { delete batch; }

cairn_code cairn_store_write(cairn_store* store, const cairn_write_batch* batch,
                             const cairn_append_options* options, cairn_branch** created,
                             size_t created_capacity, cairn_ticket** ticket, cairn_error** error) {
  return Call(error, [&]() -> Status {
    if (ticket != nullptr) *ticket = nullptr;
    // No batch creates more branches than it has changes.
    if (created != nullptr) {
      std::fill_n(created, std::min<size_t>(created_capacity, cairn::kMaxBatchOps), nullptr);
    }
    CAIRN_C_NEED(store);
    CAIRN_C_NEED(batch);
    // All handles are made first: after the write nothing may fail.
    const size_t count = created == nullptr ? 0 : CreatedBy(batch->value);
    if (count > created_capacity) {
      return Invalid("created_capacity is " + std::to_string(created_capacity) +
                     ", and the batch makes " + std::to_string(count));
    }
    std::vector<std::unique_ptr<cairn_branch>> handles(count);
    for (auto& handle : handles) handle = std::make_unique<cairn_branch>();
    auto end = std::make_unique<cairn_ticket>();
    CAIRN_ASSIGN_OR_RETURN(const cairn::AppendOptions converted, ToAppendOptions(options));
    CAIRN_ASSIGN_OR_RETURN(cairn::Store::WriteResult written,
                           store->value.Write(batch->value, converted));
    for (size_t i = 0; i < count; ++i) {
      handles[i]->value = std::move(written.created[i]);
      created[i] = handles[i].release();
    }
    end->value = std::move(written.ticket);
    if (ticket != nullptr) *ticket = end.release();
    return Status::Ok();
  });
}

}  // extern "C"
