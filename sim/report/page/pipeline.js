// SPDX-License-Identifier: Apache-2.0
'use strict';
// The pipeline: stages by time.

function clockTiles() {
  return null;
}

function pipelineSection() {
  return null;
}
