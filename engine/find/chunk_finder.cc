// SPDX-License-Identifier: Apache-2.0
#include "engine/find/chunk_finder.h"

#include <algorithm>
#include <mutex>

#include "engine/find/constants.h"

namespace cairn::engine {

// Those that index chunks, each once. One that is not in memory has no policy.
Result<std::vector<std::string_view>> ChunkFinder::NamespacesOf(const PrefixQuery& query) const {
  std::vector<std::string_view> all(query.also.begin(), query.also.end());
  all.insert(all.begin(), query.ns);
  std::vector<std::string_view> with_chunks;
  const std::lock_guard lock(deps_.write->mutex());
  const Tree::Namespaces& known = deps_.write->tree().namespaces();
  for (const std::string_view ns : all) {
    const auto one = known.find(ns);
    if (one == known.end() || one->second.policy.index != Index::kChunks) continue;
    if (std::ranges::find(with_chunks, ns) == with_chunks.end()) with_chunks.push_back(ns);
  }
  if (with_chunks.empty()) {
    return Status(StatusCode::kInvalidState,
                  "query.ns: no namespace of the query indexes chunks (policy.index)");
  }
  return with_chunks;
}

Result<ChunkMatches> ChunkFinder::Find(const PrefixQuery& query) {
  const Lifecycle::Call call(deps_.write->lifecycle);
  CAIRN_RETURN_IF_ERROR(deps_.write->lifecycle->CheckUsable());
  CAIRN_RETURN_IF_ERROR(prefixes_.CheckQuery(query));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string_view> namespaces, NamespacesOf(query));
  ChunkMatches found;
  const uint64_t moves = deps_.indexer->moves();
  if (query.memory_only) {
    found.complete = deps_.indexer->complete();
  } else {
    deps_.coalesced->FlushAll();
    found.complete = deps_.indexer->CatchUp(kCatchUpNodes);
  }
  const std::vector<Fingerprint> chosen = FingerprintsOf(query);
  for (const std::string_view ns : namespaces) {
    CAIRN_RETURN_IF_ERROR(AddFrom(query, chosen, ns, &found));
  }
  // A join gave content to a node that may not have been indexed when the hints were asked.
  if (deps_.indexer->moves() != moves) found.complete = false;
  KeepLongest(&found.matches);
  return found;
}

Status ChunkFinder::AddFrom(const PrefixQuery& query, std::span<const Fingerprint> chosen,
                            std::string_view ns, ChunkMatches* found) {
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<Hints> hints, prefixes_.HintsNow());
  if (hints == nullptr) {  // A reader's writer is still making them.
    found->complete = false;
    return Status::Ok();
  }
  ChunkSearch search(*deps_.write, deps_.reader, deps_.indexer, *hints, query, chosen, ns);
  auto matches = search.Run();
  found->looked_up += search.looked_up();
  found->compared += search.compared();
  if (matches.ok()) {
    if (search.cut_short()) found->complete = false;
    found->matches.insert(found->matches.end(), matches->begin(), matches->end());
    return Status::Ok();
  }
  // A reader may know files that are gone: what it is shown next names others.
  const StatusCode code = matches.status().code();
  const bool moved = deps_.write->options->read_only &&
                     (code == StatusCode::kNotFound || code == StatusCode::kStale);
  if (!moved && !search.hints_damaged()) return matches.status();
  deps_.indexer->Discard(*hints, matches.status());
  found->complete = false;
  return Status::Ok();
}

}  // namespace cairn::engine
