// SPDX-License-Identifier: Apache-2.0
//
// The content of the golden stores, and their history. One story is told to a store, or to nobody:
// in both cases the content that a store must show then is written into a book. So a golden store
// lies in the tree once, as files, and its required content follows from this code.
//
// A story that was told once is never changed: a store of the tree was made by it. A later format
// gets a story of its own.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/io/world.h"
#include "cairn/store.h"
#include "tests/golden/golden_rows.h"
#include "tests/model/reference_model.h"

namespace cairn::golden {

// Samplers and metadata of its branches are numbers that SamplerOf and MetadataOf take; KV seeds
// are those of Rows. `model` is an index into `models`.
struct Book {
  std::vector<ModelSpec> models;
  std::map<std::string, NamespacePolicy> policies;
  std::map<std::string, testing::ModelBranch> branches;  // By name; one has none.
};

SamplerState SamplerOf(uint64_t number);
AppMetadata MetadataOf(uint64_t number);

// Options that every opening of a golden store begins with.
Options GoldenOptions();

// To a store that is made at `path`, and closed in the end; `world` null: to nobody. A store that
// fails ends the process.
Book TellFormat1(const std::shared_ptr<const io::World>& world = nullptr,
                 const std::string& path = "");

}  // namespace cairn::golden
