// SPDX-License-Identifier: BSD-3-Clause
//
// The room of what outlives a run. A checkpoint is a folder with one array of floats for each of weights,
// first and second moments, every element at its number in the whole model, so that any layout reads what any
// other wrote:
//
//   DIR/step-00000100/weights  first-moments  second-moments  checkpoint.json
//
// and tokenizer.model where tokens are not bytes. It is written beside its name and renamed when all of it is
// on the disk.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "model/layout.hpp"
#include "parallel/model_states.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// What a checkpoint says of itself.
struct CheckpointInfo {
  Index step = 0;     ///< steps that were made
  Index updates = 0;  ///< of these, without skipped ones
  float loss_scale = 1;
  Index good_steps = 0;  ///< since the loss scale last changed
  ModelShape shape;
  std::uint64_t seed = 0;
  Index batch = 0;
  std::string tokenizer;  ///< Tokenizer::model()
  std::string data;       ///< of the run that wrote it, and its layout: for people
  std::string layout;
};

/// Finished checkpoints in a folder, oldest first; none where there is no such folder.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& folder);

/// A checkpoint on the disk, mapped. Throws Error that names what is missing, damaged, or not of this kind.
class Checkpoint {
 public:
  /// `path`: a checkpoint, or a folder of some, of which the newest is taken.
  explicit Checkpoint(const std::filesystem::path& path);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const CheckpointInfo& info() const { return info_; }
  const std::filesystem::path& path() const { return path_; }
  /// For ModelStates::load, as long as the checkpoint is there.
  ModelStates::Source source() const;

 private:
  void map(StateKind kind);

  std::filesystem::path path_;
  CheckpointInfo info_;
  std::array<const float*, kStateKindCount> states_{};
  std::size_t bytes_ = 0;
};

/// Writes checkpoints of a run into a folder that all ranks see, and keeps the newest `kept`.
class CheckpointWriter {
 public:
  /// A stretch of one state: its first element's number in the model, values, how many.
  using Emit = std::function<void(Index, const float*, Index)>;
  /// Calls Emit for all that this rank is to write of a state.
  using States = std::function<void(StateKind, const Emit&)>;

  CheckpointWriter(std::filesystem::path folder, int kept) : folder_(std::move(folder)), kept_(kept) {}

  /// Collective. Every rank gets "" or why it could not be written; earlier checkpoints stay in that case.
  std::string write(RankGroup& world, const CheckpointInfo& info, const States& states) const;

 private:
  std::filesystem::path folder_;
  int kept_;
};

}  // namespace trainer
