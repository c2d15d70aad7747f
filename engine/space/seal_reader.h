// SPDX-License-Identifier: Apache-2.0
//
// Reads the positions of a source from where its extents say that they are. What they name stays:
// only the space thread, which seals, recycles log segments and deletes tables.
#pragma once

#include <span>
#include <vector>

#include "engine/space/record_stage.h"
#include "engine/space/seal_table.h"
#include "engine/store_core.h"

namespace cairn {

class StoreSealReader final : public engine::SealReader {
 public:
  explicit StoreSealReader(StoreCore* core) : core_(core) {}

  // These are read next, in this order, so their small records may be read together.
  void Expect(std::span<const engine::Tree::SealSource> sources) {
    expected_ = sources;
    looked_ahead_ = 0;
  }

  Status ReadTokens(const engine::Tree::SealSource& source, std::span<TokenId> into) override;
  Status ReadKv(const engine::Tree::SealSource& source, const GroupView& into) override;
  Result<std::vector<std::byte>> ReadState(const engine::Tree::SealSource& source) override;
  Status Take(uint64_t read_bytes, uint64_t written_bytes) override;

 private:
  Status Read(const engine::Tree::SealSource& source, const RestoreRequest& request);
  Status LookAhead(const engine::Tree::SealSource& source);
  Status FillStage();

  StoreCore* const core_;
  std::span<const engine::Tree::SealSource> expected_;
  size_t looked_ahead_ = 0;  // Records of the sources before it were put into the stage.
  engine::RecordStage stage_;
};

}  // namespace cairn
